package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	// deployDir is the folder with the module and the schemas that the module reads.
	deployDir = "deploy"
	moduleDir = "deploy/terraform"
	// runTime bounds one run of Terraform. A run takes seconds on an idle machine.
	runTime = 5 * time.Minute
	// graceTime is the time that Terraform has to stop its providers after an interrupt.
	graceTime = 20 * time.Second
	// installed is the list of local modules that `terraform get` writes. Without the list, Terraform
	// refuses to work. A change of a local module needs no further `get`.
	installed = ".terraform/modules/modules.json"
)

// repository is the directory that contains deploy/.
var repository = "."

// providerConfig makes Terraform take the provider from a directory. This needs no registry, no
// `init` and no lock file.
const providerConfig = `disable_checkpoint = true
provider_installation {
  dev_overrides {
    "hashicorp/google" = %q
  }
}
`

// A module is a copy of deploy/ in its own directory. The copy has no lock file, state or values,
// because these belong to a deployment.
type module struct {
	root        string
	environment []string
	// If hasty is true, a run of tests ends at the first failure.
	hasty bool
}

// newModule copies deploy/ and the runbook, and makes Terraform use the provider in plugins. A
// proxy on a closed port keeps all requests on this machine. The caller must call remove.
func newModule(plugins string) (*module, error) {
	root, err := os.MkdirTemp("", "lockstep-tf-")
	if err != nil {
		return nil, err
	}
	m := &module{root: root}
	if err := m.fill(plugins); err != nil {
		return nil, errors.Join(err, m.remove())
	}
	return m, nil
}

func (m *module) fill(plugins string) error {
	if err := copyTree(filepath.Join(repository, deployDir), filepath.Join(m.root, deployDir)); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(repository, moduleDir, runbook), m.path(runbook)); err != nil {
		return err
	}
	config := filepath.Join(m.root, "terraform.tfrc")
	override := fmt.Sprintf(providerConfig, plugins)
	m.environment = append(environment(), "HOME="+m.root, "TF_CLI_CONFIG_FILE="+config, "TF_IN_AUTOMATION=1")
	return os.WriteFile(config, []byte(override), 0o600)
}

// environment returns the environment for Terraform and its provider.
func environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "TMPDIR=" + os.TempDir(),
		"GOOGLE_OAUTH_ACCESS_TOKEN=none", "HTTPS_PROXY=http://127.0.0.1:9",
	}
}

// with makes Terraform use the running provider.
func (m *module) with(provider *running) { m.environment = append(m.environment, provider.attach) }

func (m *module) remove() error { return os.RemoveAll(m.root) }

// path returns the path in the copy for a file of deploy/terraform.
func (m *module) path(name string) string { return filepath.Join(m.root, moduleDir, name) }

// terraform runs a Terraform command in the copy, and returns its stdout, even if there is an
// error. The error contains its stderr.
func (m *module) terraform(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	var stdout bytes.Buffer
	err := m.run(ctx, &stdout, args...)
	return stdout.Bytes(), err
}

// run is like terraform, but writes to the given stdout and has no time limit.
func (m *module) run(ctx context.Context, stdout io.Writer, args ...string) error {
	if _, err := os.Stat(m.path(installed)); errors.Is(err, fs.ErrNotExist) {
		if err := m.command(ctx, io.Discard, "get"); err != nil {
			return err
		}
	}
	return m.command(ctx, stdout, args...)
}

func (m *module) command(ctx context.Context, stdout io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "terraform", append(args, "-no-color")...)
	cmd.Dir, cmd.Env = m.path("."), m.environment
	// Terraform stops its providers on an interrupt. A kill would leave the providers running.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = graceTime
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("terraform %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// personal matches the files that belong to a deployment, not to the module.
var personal = regexp.MustCompile(`\.tfvars(\.json)?$|\.tfstate`)

// copyTree copies the files of deploy/. It leaves out hidden files, values and state.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(entry.Name(), ".") && entry.IsDir():
			return filepath.SkipDir
		case strings.HasPrefix(entry.Name(), "."), entry.IsDir(), personal.MatchString(entry.Name()):
			return nil
		}
		relative, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		return copyFile(name, filepath.Join(to, relative))
	})
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}

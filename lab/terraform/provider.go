package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	// pluginsVariable is the environment variable with the directory of the provider. The Makefile
	// sets the variable.
	pluginsVariable = "LOCKSTEP_TF_PLUGINS"
	// registry is an address that answers if Terraform's providers can be downloaded.
	registry = "https://registry.terraform.io/.well-known/terraform.json"
	// reachTime bounds the check whether the registry answers.
	reachTime = 5 * time.Second
	// downloadTime bounds a download of about 40 MB.
	downloadTime = 5 * time.Minute
	// buildTime bounds the compilation of the provider, even on a slow machine.
	buildTime = 40 * time.Minute
)

// errMissing is wrapped by the error if Terraform or the provider is missing.
var errMissing = errors.New("cannot check here")

// present returns the directory of Google's provider if this machine has the provider and
// Terraform. If only the provider is missing, present returns the directory and an error.
func present() (dir string, err error) {
	if _, err := exec.LookPath("terraform"); err != nil {
		return "", fmt.Errorf("%w: Terraform 1.9 or later is not installed: https://developer.hashicorp.com/terraform/install", errMissing)
	}
	dir = os.Getenv(pluginsVariable)
	if dir == "" {
		dir = filepath.Join("build", "terraform")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(dir, "terraform-provider-google*"))
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s has no google provider: `make tf-provider` builds one, in some minutes", errMissing, dir)
	}
	return dir, err
}

// obtain returns the directory of the provider. If the provider is missing, obtain downloads it. If
// the registry is not reachable and build is true, obtain builds it. If this fails, obtain returns
// an error. It also returns the directory then, provided that Terraform is installed.
func obtain(ctx context.Context, build bool, log io.Writer) (string, error) {
	dir, err := present()
	if err == nil || dir == "" {
		return dir, err
	}
	if reachable(ctx) {
		fmt.Fprintln(log, "downloading Google's provider from Terraform's registry to", dir)
		return dir, download(ctx, dir)
	}
	if !build {
		return dir, fmt.Errorf("%w, and Terraform's registry does not answer", err)
	}
	fmt.Fprintln(log, "Terraform's registry does not answer: building Google's provider, once, in some minutes (2 GB of memory)")
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	return dir, stream(ctx, log, "make", "--no-print-directory", "tf-provider", pluginsVariable+"="+dir)
}

func reachable(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, registry, nil)
	if err != nil {
		return false
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// download makes Terraform download and verify the newest provider that the module accepts.
func download(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	work, err := os.MkdirTemp("", "lockstep-tf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	settings, err := filepath.Glob(filepath.Join(repository, moduleDir, "variables*.tf"))
	if err != nil {
		return err
	}
	for _, name := range append(settings, filepath.Join(repository, moduleDir, "versions.tf")) {
		if err := copyFile(name, filepath.Join(work, filepath.Base(name))); err != nil {
			return err
		}
	}
	if err := stream(ctx, io.Discard, "terraform", "-chdir="+work, "init", "-backend=false", "-input=false"); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(work, ".terraform/providers/*/hashicorp/google/*/*/terraform-provider-google*"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("terraform init left providers %q", found)
	}
	if err != nil {
		return err
	}
	return copyFile(found[0], filepath.Join(dir, filepath.Base(found[0])))
}

// stream runs a program and writes its output to the writer to.
func stream(ctx context.Context, to io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = to, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = graceTime
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, args[0], err)
	}
	return nil
}

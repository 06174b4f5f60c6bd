package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// gitTimeout bounds one git command on local files.
const gitTimeout = time.Minute

// A modulePath has a domain and at least one more element. Go would accept
// less. But the path is replaced as text, and a single word would also match
// other text when the copy is forked in turn.
var modulePath = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9_~-]+(\.[A-Za-z0-9_~-]+)*)+$`)

func checkModule(module string) error {
	if !modulePath.MatchString(module) {
		return fmt.Errorf("%q is not a module path like example.org/acme/pair", module)
	}
	return nil
}

// copyRepository copies the repository at src to dst, which must be empty or
// absent, with its module path replaced by module.
func copyRepository(ctx context.Context, src, dst, module string) error {
	old, err := moduleOf(src)
	if err != nil {
		return err
	}
	files, err := git(ctx, src, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return err
	}
	if err := makeEmptyDir(dst); err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimRight(files, "\x00"), "\x00") {
		err := copyFile(filepath.Join(src, name), filepath.Join(dst, name), old, module)
		// Git also lists files that are deleted without a commit.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	_, err = git(ctx, dst, "init", "--quiet", "--initial-branch=main")
	return err
}

func moduleOf(dir string) (string, error) {
	gomod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read module path, in the root of the repository: %w", err)
	}
	for line := range strings.Lines(string(gomod)) {
		if module, found := strings.CutPrefix(line, "module "); found {
			return strings.TrimSpace(module), nil
		}
	}
	return "", errors.New("read module path: no module line in go.mod")
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

func makeEmptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("make directory: %s is not empty, and fork overwrites nothing", dir)
	}
	return nil
}

func copyFile(from, to, oldModule, newModule string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	content = bytes.ReplaceAll(content, []byte(oldModule), []byte(newModule))
	if filepath.Ext(from) == ".go" {
		// Import blocks are sorted by path, and the path has changed.
		if content, err = format.Source(content); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"example.com/lockstep/internal/command"
)

const (
	root   = "../.."
	module = "pair.test/acme/fork"
)

// TestForkHasItsNewPath reads the copy only: CI builds one, and runs its tests.
func TestForkHasItsNewPath(t *testing.T) {
	t.Parallel()
	dir := fork(t)
	assertNoTraceOfOldPath(t, dir)
	if info, err := os.Stat(filepath.Join(dir, ".ci", "run")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf(".ci/run of the fork: %v, want it executable: %v", info, err)
	}
	for _, hidden := range []string{".github/workflows/ci.yml", ".dockerignore", ".golangci.yml", ".gitignore"} {
		if _, err := os.Stat(filepath.Join(dir, hidden)); err != nil {
			t.Errorf("the fork lacks what it needs: %v", err)
		}
	}
}

// TestForkKeepsTheLicense: Apache-2.0 lets a copy change everything but the names of the
// authors. A module path in LICENSE would be replaced with the others.
func TestForkKeepsTheLicense(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	dir := fork(t)
	got, err := os.ReadFile(filepath.Join(dir, "LICENSE"))
	if err != nil || !bytes.Equal(got, want) || !bytes.Contains(got, []byte("the Lockstep authors")) {
		t.Errorf("LICENSE of the fork: %v\n%s", err, got)
	}
	for _, name := range []string{"README.md", "Dockerfile", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Contains(text, []byte("Apache-2.0")) {
			t.Errorf("%s of the fork does not name Apache-2.0: %v", name, err)
		}
	}
}

func TestForkOfAFork(t *testing.T) {
	t.Parallel()
	first, second := fork(t), t.TempDir()
	if err := copyRepository(t.Context(), first, second, "other.test/pair"); err != nil {
		t.Fatal(err)
	}
	if got, err := moduleOf(second); err != nil || got != "other.test/pair" {
		t.Errorf("module of the second fork = %q, %v", got, err)
	}
	if got, err := os.ReadFile(filepath.Join(second, "LICENSE")); err != nil || !bytes.Contains(got, []byte("the Lockstep authors")) {
		t.Errorf("LICENSE of the second fork: %v\n%s", err, got)
	}
}

func TestForkOverwritesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := filepath.Join(dir, "go.mod")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := copyRepository(t.Context(), root, dir, module)
	if err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("fork into a directory in use: %v, want a refusal", err)
	}
	if got, err := os.ReadFile(mine); err != nil || string(got) != "mine" {
		t.Errorf("the file there is now %q, %v", got, err)
	}
}

func TestModulePaths(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"example.org/pair", "github.com/Acme/pair.v2", "git.acme-corp.io/a_b/~c/pair/v2"} {
		if err := checkModule(good); err != nil {
			t.Errorf("checkModule(%q): %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "pair", "acme/pair", "example.org", "example.org/", "/example.org/pair", "example.org//pair",
		"example.org/../pair", "example.org/pair.", "example.org/pa ir", "https://example.org/pair", "example.org/pair;ls",
	} {
		if err := checkModule(bad); err == nil {
			t.Errorf("checkModule(%q) accepts it", bad)
		}
	}
}

func TestUsageErrorsComeBeforeAnyWork(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--module", "pair"}, {"--modul", module}, {"--module", module, t.TempDir()}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); !errors.As(err, new(command.UsageError)) {
			t.Errorf("run(%q): %v, want wrong usage", args, err)
		}
	}
}

// forks is the directory of the copy that all tests read.
var forks string

func TestMain(m *testing.M) {
	var err error
	if forks, err = os.MkdirTemp("", "lockstep-fork-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(forks)
	m.Run()
}

// copied makes that copy, which takes seconds under the race detector.
var copied = sync.OnceValue(func() error { return copyRepository(context.Background(), root, forks, module) })

// fork returns a copy to read.
func fork(t *testing.T) (dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not a git clone, and fork copies what git lists")
	}
	if err := copied(); err != nil {
		t.Fatal(err)
	}
	return forks
}

func assertNoTraceOfOldPath(t *testing.T, dir string) {
	t.Helper()
	old, err := moduleOf(root)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if bytes.Contains(content, []byte(old)) {
			t.Errorf("%s still mentions %s", name, old)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

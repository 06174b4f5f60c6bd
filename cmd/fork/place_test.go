package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestForkOverwritesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mine := filepath.Join(dir, "go.mod")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := fork(t.Context(), root, dir, module, current, theirs)
	if err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("fork into a directory in use: %v, want a refusal", err)
	}
	if got, err := os.ReadFile(mine); err != nil || string(got) != "mine" {
		t.Errorf("the file there is now %q, %v", got, err)
	}
}

// TestAForkIsOutsideOfTheRepository: git would list a fork in the repository as a new file, and the
// next fork would read it.
func TestAForkIsOutsideOfTheRepository(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(src, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{src, filepath.Join(src, "sub"), filepath.Join(src, "absent", "sub"), filepath.Join(link, "sub")} {
		if err := checkOutside(src, dir); err == nil {
			t.Errorf("a fork of %s in %s: no error", src, dir)
		}
	}
	for _, dir := range []string{src + "-fork", filepath.Join(src, "..", "fork"), filepath.Dir(src), filepath.Join(src, "..", "..fork")} {
		if err := checkOutside(src, dir); err != nil {
			t.Errorf("a fork of %s in %s: %v", src, dir, err)
		}
	}
	if _, err := fork(t.Context(), root, filepath.Join(root, "absent"), module, current, theirs); err == nil || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("a fork in this repository: %v, want a refusal", err)
	}
}

// TestAReadOnlyFileCanBeChangedInAFork: make fork generates some files again, and a developer edits the others.
func TestAReadOnlyFileCanBeChangedInAFork(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "a"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	if f, err := readFile(src, "a"); err != nil || f.mode&0o200 == 0 {
		t.Errorf("%v, mode %v", err, f.mode)
	}
}

// TestAnArchiveIsNoRepository: a download of the source has no .git.
func TestAnArchiveIsNoRepository(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("GIT_CEILING_DIRECTORIES", filepath.Dir(dir))
	if _, err := readAll(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "`git init` first") {
		t.Errorf("%v, want the missing step", err)
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/lockstep/cmd/fork/repo"
)

// TestTheRecordHasTheCommandOfTheFork: the command in the record gives the same words, and the
// record names the commit of the origin and whether its files were that commit's.
func TestTheRecordHasTheCommandOfTheFork(t *testing.T) {
	t.Parallel()
	needsGit(t)
	src := t.TempDir()
	if err := repo.Write(filepath.Join(src, "go.mod"), "module example.net/acme/origin\n"); err != nil {
		t.Fatal(err)
	}
	o := options{module: module, dir: t.TempDir(), to: words{"hero", "heroes", "guild", "board", "saga"}, without: true}
	want := func(state string) string {
		return "# The origin is example.net/acme/origin, " + state + ".\n" +
			"make fork MODULE=" + module + " DIR=../again AGGREGATE=hero PLURAL=heroes OWNER=guild READER=board NAME=saga ENGAGEMENT=no\n"
	}
	check := func(state string) {
		t.Helper()
		if err := writeRecord(t.Context(), src, o); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(o.dir, repo.Record)); err != nil || !strings.HasSuffix(string(got), want(state)) {
			t.Errorf("the record is %q (%v), want the end %q", got, err, want(state))
		}
	}
	git(t, src, "init", "--quiet")
	check("without a commit")
	git(t, src, "add", "-A")
	git(t, src, "-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "-m", "origin")
	head := "commit " + strings.TrimSpace(git(t, src, "rev-parse", "HEAD"))
	check(head)
	if err := repo.Write(filepath.Join(src, "new"), ""); err != nil {
		t.Fatal(err)
	}
	check(head + " with changes that are not committed")
}

// TestAForkDoesNotHaveTheRecordOfItsOrigin: a fork of a fork has a record of its own only.
func TestAForkDoesNotHaveTheRecordOfItsOrigin(t *testing.T) {
	t.Parallel()
	if !isLeftOut(repo.Record) {
		t.Errorf("a fork takes %s of the repository that it is made from", repo.Record)
	}
}

// git runs a git command, and returns its output.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := repo.Git(t.Context(), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

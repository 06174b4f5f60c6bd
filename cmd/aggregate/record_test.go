package main

import (
	"os"
	"path/filepath"
	"testing"

	"example.com/lockstep/cmd/fork/repo"
)

// A fork has a record of the commands that made it: the command is added at its end. A repository
// without the record gets none.
func TestTheRecordOfAForkHasTheCommand(t *testing.T) {
	t.Parallel()
	root := linked(t)
	if text, found := planned(t, root, shapes[1]).files[repo.Record]; found {
		t.Errorf("a repository without a record gets one: %q", text)
	}
	if err := repo.Write(filepath.Join(root, repo.Record), "make fork\n"); err != nil {
		t.Fatal(err)
	}
	for want, words := range map[string][3]string{
		"make fork\nmake aggregate NAME=limerick FIELDS=\"line_count:int64\"\n": shapes[1],
		"make fork\nmake aggregate NAME=sonnet FIELDS=\"text:string,due_at:timestamp\" PARENT=video\n": {
			"sonnet", "text:string, due_at:timestamp", "video",
		},
	} {
		if got := planned(t, root, words).files[repo.Record]; got != want {
			t.Errorf("the record is %q, want %q", got, want)
		}
	}
}

// linked returns a folder that has the files of this repository, except its record.
func linked(t *testing.T) (root string) {
	t.Helper()
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadDir(here)
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	for _, entry := range all {
		if entry.Name() == repo.Record {
			continue
		}
		if err := os.Symlink(filepath.Join(here, entry.Name()), filepath.Join(root, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

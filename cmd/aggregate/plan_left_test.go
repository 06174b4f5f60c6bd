package main

import (
	"path/filepath"
	"strings"
	"testing"

	"example.com/lockstep/cmd/fork/repo"
)

// TestAnAggregateThatAForkHasLeftOutIsRefused: such a fork has the migrations that made the tables,
// and one that drops them.
func TestAnAggregateThatAForkHasLeftOutIsRefused(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.org/lean\n", "migrations/any/09000_no_comments.sql": "-- +goose Up\n"} {
		if err := repo.Write(filepath.Join(root, filepath.FromSlash(name)), text); err != nil {
			t.Fatal(err)
		}
	}
	a, err := parse("comment", goodFields, "")
	if err == nil {
		_, err = plan(root, a)
	}
	if err == nil || !strings.Contains(err.Error(), "09000_no_comments.sql has dropped") {
		t.Errorf("%v, want the migration that has dropped the tables", err)
	}
}

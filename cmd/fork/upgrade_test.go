package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"example.com/lockstep/cmd/fork/repo"
	"example.com/lockstep/internal/pgtest"
)

// released has the highest number of this repository's migrations, by folder, at the time when a
// database was migrated by a fork without the second aggregate. It never grows. Migrations with
// later numbers run in that database after the fork's removal.
var released = map[string]int{"migrations/video": 1002, "migrations/catalog": 1021}

// migrator migrates both schemas of the fork that it is in.
const migrator = `package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"` + module + `/migrations"
)

func main() {
	for _, s := range []migrations.Service{migrations.Video, migrations.Catalog} {
		if err := migrations.Up(context.Background(), os.Args[1], s, slog.New(slog.DiscardHandler)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
`

// TestAnUpgradeMigratesTheDatabaseOfALeanFork: a fork without the second aggregate has migrated a
// database. The fork that is made again of a later version migrates that database, too: the
// migration that removes the tables has kept its number, so no later migration takes it.
func TestAnUpgradeMigratesTheDatabaseOfALeanFork(t *testing.T) {
	t.Parallel()
	needsGit(t)
	if _, err := removalOf(root); err != nil {
		t.Skip(err)
	}
	files, err := readAll(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	then, later := files[:0:0], files
	for _, f := range files {
		if highest, found := released[path.Dir(f.name)]; !found || !isLater(f.name, highest) {
			then = append(then, f)
		}
	}
	for folder, table := range map[string]string{"migrations/video": "video.videos", "migrations/catalog": "catalog.video_projection"} {
		up := fmt.Sprintf("-- +goose Up\nALTER TABLE %s ADD COLUMN added text;\n", table)
		later = append(later, file{name: nextOfOrigin(files, folder), content: []byte(up), mode: 0o600})
	}
	db := pgtest.NewDatabase(t)
	migrateLeanFork(t, then, db.Admin)
	migrateLeanFork(t, later, db.Admin)
	const added = `SELECT count(*) FROM information_schema.columns WHERE column_name = 'added' AND table_schema IN ('video', 'catalog')`
	var columns int
	if err := db.Pool(t, db.Admin).QueryRow(t.Context(), added).Scan(&columns); err != nil || columns != len(released) {
		t.Errorf("%d of the new columns are there (%v), want %d", columns, err, len(released))
	}
}

// isLater reports whether a file is a migration of this repository above a number.
func isLater(name string, highest int) bool {
	number, err := strconv.Atoi(strings.SplitN(path.Base(name), "_", 2)[0])
	return err == nil && number > highest && number <= repo.LastOfOrigin
}

// nextOfOrigin returns the name of the next migration of this repository.
func nextOfOrigin(files []file, folder string) string {
	next := released[folder] + 1
	for _, f := range files {
		for path.Dir(f.name) == folder && isLater(f.name, next-1) {
			next++
		}
	}
	return fmt.Sprintf("%s/%05d_added.sql", folder, next)
}

// migrateLeanFork makes a fork of a repository with these files, without the second aggregate, and
// migrates the database at adminURL with it.
func migrateLeanFork(t *testing.T, files []file, adminURL string) {
	t.Helper()
	src, dir := t.TempDir(), t.TempDir()
	if err := write(t.Context(), src, files); err != nil {
		t.Fatal(err)
	}
	if _, err := fork(t.Context(), src, dir, module, current, current); err != nil {
		t.Fatal(err)
	}
	if err := withoutEngagements(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := repo.Write(filepath.Join(dir, "cmd", "migrator", "main.go"), migrator); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), generateTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "./cmd/migrator", adminURL)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

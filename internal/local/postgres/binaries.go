package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// places are the directories in which packages install Postgres outside the
// PATH.
func places() []string {
	return []string{
		"/usr/lib/postgresql/*/bin",                               // Debian, Ubuntu
		"/usr/pgsql-*/bin",                                        // Red Hat, from postgresql.org
		"/usr/libexec/postgresql*",                                // Alpine
		"/opt/homebrew/opt/postgresql*/bin",                       // Homebrew on Apple silicon
		"/usr/local/opt/postgresql*/bin",                          // Homebrew on Intel
		"/Applications/Postgres.app/Contents/Versions/[0-9]*/bin", // Postgres.app
	}
}

// ErrNotInstalled means that this machine has no Postgres, and that none could be
// downloaded.
var ErrNotInstalled = errors.New("install Postgres (Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql)")

// findBinaries returns the directory with initdb and postgres. It prefers the directory on the
// PATH, then the newest directory in places, then the downloaded directory.
func findBinaries(ctx context.Context, log io.Writer) (string, error) {
	return installedOr(places(), func() (string, error) { return download(ctx, log) })
}

func installedOr(globs []string, download func() (string, error)) (string, error) {
	if dir := installed(globs); dir != "" {
		return dir, nil
	}
	dir, err := download()
	if err != nil {
		return "", fmt.Errorf("%w: none found here, and the download failed: %w", ErrNotInstalled, err)
	}
	return dir, nil
}

func installed(globs []string) string {
	if path, err := exec.LookPath("initdb"); err == nil {
		if dir := realDir(path); complete(dir) {
			return dir
		}
	}
	var found []string
	for _, glob := range globs {
		dirs, _ := filepath.Glob(glob) // fails on a malformed pattern only
		found = append(found, slices.DeleteFunc(dirs, func(d string) bool { return !complete(d) })...)
	}
	if len(found) == 0 {
		return ""
	}
	return slices.MaxFunc(found, func(a, b string) int { return major(a) - major(b) })
}

// realDir returns the directory of a program. It resolves links, because the server looks for its
// other files next to its real path.
func realDir(program string) string {
	if target, err := filepath.EvalSymlinks(program); err == nil {
		program = target
	}
	return filepath.Dir(program)
}

func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// lastNumber matches the major version in a path.
var lastNumber = regexp.MustCompile(`(\d+)\D*$`)

// major returns the last number in a path, such as 17 in /usr/lib/postgresql/17/bin. It returns 0
// if there is none.
func major(path string) int {
	match := lastNumber.FindStringSubmatch(path)
	if match == nil {
		return 0
	}
	n, _ := strconv.Atoi(match[1]) // digits only
	return n
}

package postgres

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"
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

// oldest is the oldest major version that the pair supports.
const oldest = 15

// ErrNotInstalled means that this machine has no Postgres that the pair supports, and that none could
// be downloaded.
var ErrNotInstalled = fmt.Errorf("install Postgres %d or later "+
	"(Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql@17)", oldest)

// findBinaries returns the directory with initdb and postgres. It prefers the directory on the
// PATH, then the newest directory in places, then the downloaded directory. It leaves out versions
// before oldest, such as the 14 of Ubuntu 22.04.
func findBinaries(ctx context.Context, log io.Writer) (string, error) {
	return installedOr(ctx, places(), log, func() (string, error) { return download(ctx, log) })
}

func installedOr(ctx context.Context, globs []string, log io.Writer, download func() (string, error)) (string, error) {
	dir, others := installed(ctx, globs)
	if dir != "" {
		return dir, nil
	}
	for _, other := range others {
		fmt.Fprintf(log, "not taken, because Postgres %d or later is needed: %s\n", oldest, other)
	}
	dir, err := download()
	if err != nil {
		return "", fmt.Errorf("%w: none found here, and the download failed: %w", ErrNotInstalled, err)
	}
	return dir, nil
}

// installed returns the directory of the installed programs, or "" and the directories of programs
// that are too old or do not run.
func installed(ctx context.Context, globs []string) (dir string, others []string) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if dir := realDir(path); complete(dir) {
			if major(ctx, dir) >= oldest {
				return dir, nil
			}
			others = append(others, dir)
		}
	}
	newest := oldest - 1
	for _, glob := range globs {
		found, _ := filepath.Glob(glob) // fails on a malformed pattern only
		for _, d := range found {
			if !complete(d) || slices.Contains(others, d) {
				continue
			}
			if version := major(ctx, d); version > newest {
				dir, newest = d, version
			} else if version < oldest {
				others = append(others, d)
			}
		}
	}
	return dir, others
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

// versionTime bounds the run of a program that prints its version. It takes milliseconds.
const versionTime = 20 * time.Second

// majorVersion matches the major version in the answer of postgres --version.
var majorVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// major returns the major version of the programs in a directory. It asks the program, because a path
// may have no version or other numbers, such as Homebrew's Cellar/postgresql@14/14.15/bin. It returns
// 0 if the program does not run here.
func major(ctx context.Context, dir string) int {
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	answer, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	match := majorVersion.FindSubmatch(answer)
	if err != nil || match == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(match[1])) // digits only
	return n
}

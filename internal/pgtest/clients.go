package pgtest

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
)

// pgDumpVersion matches the major version in the answer of pg_dump --version.
var pgDumpVersion = regexp.MustCompile(`\) (\d+)`)

// Clients returns a directory with pg_dump, pg_restore and psql that are at least as new as the
// server at url, because an older pg_dump refuses to work. It skips the test if there is no such
// directory.
func Clients(tb testing.TB, url string) (dir string) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(tb.Context()))
	var server int
	if err := conn.QueryRow(tb.Context(), `SELECT current_setting('server_version_num')::int / 10000`).Scan(&server); err != nil {
		tb.Fatal(err)
	}
	installed, err := filepath.Glob("/usr/lib/postgresql/*/bin/pg_dump")
	if err != nil {
		tb.Fatal(err)
	}
	if program, err := exec.LookPath("pg_dump"); err == nil {
		installed = append(installed, program)
	}
	for _, program := range installed {
		out, err := exec.CommandContext(tb.Context(), program, "--version").Output() //nolint:gosec // a program of Postgres on this machine
		if err != nil {
			continue // such as the link of a package that was removed
		}
		if m := pgDumpVersion.FindSubmatch(out); m != nil {
			if major, err := strconv.Atoi(string(m[1])); err == nil && major >= server {
				return filepath.Dir(program)
			}
		}
	}
	tb.Skipf("no pg_dump of version %d or later (on Debian: postgresql-client)", server)
	return ""
}

package postgres

import (
	"archive/zip"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

func TestInstalled(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"9/bin", "17/bin", "16/bin"} {
		writePrograms(t, filepath.Join(root, dir), "initdb", "postgres")
	}
	writePrograms(t, filepath.Join(root, "18/bin"), "postgres") // as the client packages install it
	globs := []string{filepath.Join(root, "*/bin")}

	t.Run("newest complete", func(t *testing.T) {
		t.Setenv("PATH", "")
		if got, want := installed(globs), filepath.Join(root, "17/bin"); got != want {
			t.Errorf("installed = %q, want %q", got, want)
		}
	})
	t.Run("path wins, links followed", func(t *testing.T) {
		links := t.TempDir()
		if err := os.Symlink(filepath.Join(root, "16/bin/initdb"), filepath.Join(links, "initdb")); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", links)
		if got, want := installed(globs), filepath.Join(root, "16/bin"); got != want {
			t.Errorf("installed = %q, want %q", got, want)
		}
	})
	t.Run("none", func(t *testing.T) {
		t.Setenv("PATH", "")
		if got := installed([]string{filepath.Join(root, "nothing/*")}); got != "" {
			t.Errorf("installed = %q, want none", got)
		}
	})
}

func TestDownloadOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // the library leaves its log there
	for _, program := range []string{"tar", "xz"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("building the archive needs %s", program)
		}
	}
	requests := 0
	archive := postgresArchive(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".jar") {
			requests++
			http.ServeFile(w, r, archive)
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	config := embeddedpostgres.DefaultConfig().BinaryRepositoryURL(server.URL)
	cache := t.TempDir()
	for range 2 {
		var log strings.Builder
		dir, err := downloadTo(t.Context(), cache, &log, config)
		if err != nil {
			t.Fatal(err)
		}
		if !complete(dir) {
			t.Errorf("%s holds no programs", dir)
		}
	}
	if requests != 1 {
		t.Errorf("fetched %d times, want once", requests)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "unpack-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDownloadFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // the library leaves its log there
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	config := embeddedpostgres.DefaultConfig().BinaryRepositoryURL(server.URL)
	t.Setenv("PATH", "")
	dir, err := installedOr([]string{filepath.Join(t.TempDir(), "nothing/*")}, func() (string, error) {
		return downloadTo(t.Context(), t.TempDir(), new(strings.Builder), config)
	})
	if !errors.Is(err, ErrNotInstalled) {
		t.Errorf("installedOr = %q, %v; want %v", dir, err, ErrNotInstalled)
	}
}

// postgresArchive returns a file in the form that the library fetches, with
// programs that fail: running them is not part of this test.
func postgresArchive(tb testing.TB) string {
	tb.Helper()
	dir := tb.TempDir()
	writePrograms(tb, filepath.Join(dir, "bin"), "initdb", "postgres", "pg_ctl")
	inner := filepath.Join(dir, "postgres.txz")
	if out, err := exec.Command("tar", "-C", dir, "-cJf", inner, "bin").CombinedOutput(); err != nil {
		tb.Fatalf("tar: %v: %s", err, out)
	}
	packed, err := os.ReadFile(inner)
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(dir, "postgres.jar")
	file, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	z := zip.NewWriter(file)
	entry, err := z.Create("postgres.txz")
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := entry.Write(packed); err != nil {
		tb.Fatal(err)
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	if err := file.Close(); err != nil {
		tb.Fatal(err)
	}
	return path
}

func writePrograms(tb testing.TB, dir string, names ...string) {
	tb.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
}

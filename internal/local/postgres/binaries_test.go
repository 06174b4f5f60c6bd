package postgres

import (
	"archive/zip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

func TestInstalled(t *testing.T) {
	root := t.TempDir()
	for version, dir := range map[string]string{"9.6.24": "9/bin", "17.5": "17/bin", "16.1": "16/bin"} {
		writeServer(t, filepath.Join(root, dir), version)
	}
	writePrograms(t, filepath.Join(root, "18/bin"), "postgres") // as the client packages install it
	writePrograms(t, filepath.Join(root, "19/bin"), "initdb", "postgres")
	// As Homebrew installs it: the last number of the path is the minor version.
	writeServer(t, filepath.Join(root, "Cellar/postgresql@14/14.15/bin"), "14.15 (Homebrew)")
	globs := []string{filepath.Join(root, "*/bin")}
	link := func(t *testing.T, dir string) {
		t.Helper()
		links := t.TempDir()
		if err := os.Symlink(filepath.Join(root, dir, "initdb"), filepath.Join(links, "initdb")); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", links)
	}

	t.Run("newest complete", func(t *testing.T) {
		t.Setenv("PATH", "")
		if got, _ := installed(t.Context(), globs); got != filepath.Join(root, "17/bin") {
			t.Errorf("installed = %q, want 17", got)
		}
	})
	t.Run("path wins, links followed", func(t *testing.T) {
		link(t, "16/bin")
		if got, _ := installed(t.Context(), globs); got != filepath.Join(root, "16/bin") {
			t.Errorf("installed = %q, want 16", got)
		}
	})
	t.Run("unless it is too old", func(t *testing.T) {
		link(t, "Cellar/postgresql@14/14.15/bin")
		if got, _ := installed(t.Context(), globs); got != filepath.Join(root, "17/bin") {
			t.Errorf("installed = %q, want 17", got)
		}
	})
	t.Run("only old ones", func(t *testing.T) {
		link(t, "Cellar/postgresql@14/14.15/bin")
		var log strings.Builder
		dir, err := installedOr(t.Context(), []string{filepath.Join(root, "9/bin")}, &log, func() (string, error) { return "downloaded", nil })
		if err != nil || dir != "downloaded" || !strings.Contains(log.String(), "9/bin\n") || !strings.Contains(log.String(), "14.15/bin\n") {
			t.Errorf("installedOr = %q, %v; log %q", dir, err, log.String())
		}
	})
	t.Run("none", func(t *testing.T) {
		t.Setenv("PATH", "")
		if got, others := installed(t.Context(), []string{filepath.Join(root, "nothing/*")}); got != "" || len(others) > 0 {
			t.Errorf("installed = %q, %q; want none", got, others)
		}
	})
}

func TestDownloadOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // the library leaves its log there
	defer syscall.Umask(syscall.Umask(0o077))
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
	abandoned, underWay := filepath.Join(cache, "unpack-1"), filepath.Join(cache, "unpack-2")
	for _, dir := range []string{abandoned, underWay} {
		writePrograms(t, filepath.Join(dir, "postgres"), "initdb")
		if err := os.Chtimes(dir, time.Time{}, time.Now().Add(-2*settled)); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := tryLock(underWay)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
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
	for _, name := range []string{"", "bin", "bin/postgres"} { // the server of root runs as another user
		info, err := os.Stat(filepath.Join(cache, "postgres-"+string(downloaded), name))
		if err != nil || info.Mode().Perm()&0o055 != 0o055 {
			t.Errorf("%s: mode %v, %v; want it open to all", name, info.Mode(), err)
		}
	}
	if requests != 1 {
		t.Errorf("fetched %d times, want once", requests)
	}
	if left, _ := filepath.Glob(filepath.Join(cache, "unpack-*")); !slices.Equal(left, []string{underWay}) {
		t.Errorf("left behind: %v, want only what another process unpacks", left)
	}
	if ran, _ := filepath.Glob(filepath.Join(cache, "*", "bin", "*"+hasRun)); len(ran) > 0 {
		t.Errorf("the download has run programs: %v", ran)
	}
}

func TestDownloadFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // the library leaves its log there
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	config := embeddedpostgres.DefaultConfig().BinaryRepositoryURL(server.URL)
	t.Setenv("PATH", "")
	dir, err := installedOr(t.Context(), []string{filepath.Join(t.TempDir(), "nothing/*")}, io.Discard, func() (string, error) {
		return downloadTo(t.Context(), t.TempDir(), new(strings.Builder), config)
	})
	if !errors.Is(err, ErrNotInstalled) {
		t.Errorf("installedOr = %q, %v; want %v", dir, err, ErrNotInstalled)
	}
}

// TestAPrivateDirectoryIsNamed: a directory of root, such as one in root's home, is none for the user
// that runs the server.
func TestAPrivateDirectoryIsNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only the server of root runs as another user")
	}
	private := filepath.Join(t.TempDir(), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", private)
	s, err := Start(t.Context(), Options{})
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "must be able to enter "+private) {
		t.Errorf("Start = %v, want an error that names %s", err, private)
	}
}

// hasRun is the ending of the file that a program of writePrograms makes next to itself.
const hasRun = ".has-run"

// writeProgram writes a program that a test runs. Meanwhile no other test may start a process: until its exec, the process would
// have the file open for writing, and the kernel would not run the program (ETXTBSY).
func writeProgram(tb testing.TB, path, script string) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		tb.Fatal(err)
	}
	openToAll(tb, path)
}

// openToAll lets the user that runs the server of root enter or run path, whatever the umask is.
func openToAll(tb testing.TB, path string) {
	tb.Helper()
	if err := os.Chmod(path, 0o755); err != nil {
		tb.Fatal(err)
	}
}

// TestInitdbSaysWhatFailed: the report of its progress does not hide the reason.
func TestInitdbSaysWhatFailed(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	openToAll(t, filepath.Dir(bin))
	openToAll(t, bin)
	script := "#!/bin/sh\necho creating subdirectories\necho no space left >&2\nexit 1\n"
	writeProgram(t, filepath.Join(bin, "initdb"), script)
	d, err := newDirectory(false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.remove()
	err = (&Server{bin: bin, dir: d}).initialise(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), ": no space left") || strings.Contains(err.Error(), "creating") {
		t.Errorf("%v, want the reason only", err)
	}
}

// TestARelativeDirectory: the server and initdb do not run in the directory of this process.
func TestARelativeDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", ".")
	d, err := newDirectory(false)
	if err != nil {
		t.Fatal(err)
	}
	defer d.remove()
	if !filepath.IsAbs(d.path) {
		t.Errorf("the server's files are in %s", d.path)
	}
}

// postgresArchive returns a file in the form that the library fetches, with programs that fail. Nothing
// runs them.
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
		writeProgram(tb, filepath.Join(dir, name), "#!/bin/sh\n: >\"$0"+hasRun+"\"\nexit 1\n")
	}
}

// writeServer writes programs of a version of Postgres.
func writeServer(tb testing.TB, dir, version string) {
	tb.Helper()
	writePrograms(tb, dir, "initdb", "postgres")
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n"
	writeProgram(tb, filepath.Join(dir, "postgres"), script)
}

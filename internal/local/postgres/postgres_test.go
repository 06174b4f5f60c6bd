package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/local/variables"
)

// parentMode makes the test binary the process that is killed.
const parentMode = "LOCKSTEP_TEST_POSTGRES_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentMode) != "" {
		beParent()
	}
	variables.Forget()
	m.Run()
}

// beParent starts a server, prints its URL and waits to be killed.
func beParent() {
	s, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stdout, "%s %q\n", s.URL(), s.dir.path) // a path may have spaces
	<-s.process.Done()
}

func TestStartServesAndCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn := connect(t, s.URL())
	settings := []struct{ name, want string }{
		{"server_encoding", "UTF8"}, {"fsync", "off"}, {"timezone", "UTC"},
		{"max_connections", "300"}, {"listen_addresses", "127.0.0.1"}, {"is_superuser", "on"},
	}
	for _, c := range settings {
		if got := ask(t, conn, "SHOW "+c.name); got != c.want {
			t.Errorf("%s = %q, want %q", c.name, got, c.want)
		}
	}
	// SHOW lc_collate is gone from Postgres 16 on.
	if got := ask(t, conn, "SELECT datcollate FROM pg_database WHERE datname = current_database()"); got != "C" {
		t.Errorf("the database sorts by %q, want C", got)
	}
	if got := ask(t, conn, "SELECT lower('Ä')"); got != "ä" {
		t.Errorf("lower('Ä') = %q: case rules must not stop at ASCII", got)
	}
	if !strings.HasPrefix(ask(t, conn, "SHOW server_version"), s.version) || !strings.Contains(s.Description(), s.version) {
		t.Errorf("version %q, description %q", s.version, s.Description())
	}
	for range 2 { // with the session above still open
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
	mustBeGone(t, s.URL())
	if _, err := os.Stat(s.dir.path); !os.IsNotExist(err) {
		t.Errorf("directory is left: %v", err)
	}
}

func TestSyncWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{Sync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn := connect(t, s.URL())
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := ask(t, conn, "SHOW "+name); got != "on" {
			t.Errorf("%s = %q, want on", name, got)
		}
	}
}

func TestKilledParentLeavesNoServer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a server with its killed parent")
	}
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentMode+"=1")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var url, dir string
	_, err = fmt.Fscanf(out, "%s %q\n", &url, &dir)
	if kill := parent.Process.Kill(); err != nil || kill != nil {
		t.Fatal(err, kill)
	}
	_ = parent.Wait() // it was killed
	mustBeGone(t, url)

	old := time.Now().Add(-2 * settled)
	if err := os.Chtimes(dir, old, old); err != nil {
		t.Fatal(err)
	}
	sweep(filepath.Dir(dir), prefix)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the next start does not remove what the killed one left: %v", err)
	}
}

func TestSweepKeepsRunningServers(t *testing.T) {
	t.Parallel()
	d, err := newDirectory(false)
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * settled)
	if err := os.Chtimes(d.path, old, old); err != nil {
		t.Fatal(err)
	}
	sweep(filepath.Dir(d.path), prefix)
	if _, err := os.Stat(d.path); err != nil {
		t.Errorf("swept a directory in use: %v", err)
	}
	if err := d.remove(); err != nil {
		t.Error(err)
	}
}

func TestProbeRefusesAnotherServer(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other := &Server{url: s.url, dir: &directory{path: "/elsewhere"}}
	if err := other.probe(t.Context()); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("probe = %v, want it to notice the other server", err)
	}
}

func TestTakenPortIsNoticed(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.process.Stop(syscall.SIGINT, stopTime); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	go func() { // a server that accepts and never answers
		for conn, err := taken.Accept(); err == nil; conn, err = taken.Accept() {
			conn.Close()
		}
	}()
	if err := s.launchAt(t.Context(), taken.Addr().(*net.TCPAddr).Port); !errors.Is(err, errDied) {
		t.Errorf("launch on a taken port = %v, want errDied, which tries the next", err)
	}
}

// TestRecoverTriesAgain: another process may have taken the port between the look at it and the server's bind. The address stays,
// because others have it.
func TestRecoverTriesAgain(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	installed, address := s.bin, s.URL()
	s.bin = s.dir.path // for the server's user
	script := fmt.Sprintf("#!/bin/sh\nif mkdir '%[1]s/tried'; then exit 1; fi\nexec '%[2]s/postgres' \"$@\"\n", s.dir.path, installed)
	writeProgram(t, filepath.Join(s.bin, "postgres"), script)
	if err := s.Recover(t.Context()); err != nil || s.URL() != address {
		t.Fatalf("Recover = %v, at %s; it was at %s", err, s.URL(), address)
	}
	ask(t, connect(t, s.URL()), "SELECT 'there'")
}

// TestRecoverNamesATakenPort: it waits for the port as long as it may, and then names it.
func TestRecoverNamesATakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := &Server{port: taken.Addr().(*net.TCPAddr).Port}
	ctx, cancel := context.WithTimeout(t.Context(), 3*pollInterval)
	defer cancel()
	if _, err := s.earlierPort(ctx); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("earlierPort = %v, want an error that names %s", err, taken.Addr())
	}
	taken.Close()
	if port, err := s.earlierPort(t.Context()); err != nil || port != s.port {
		t.Errorf("earlierPort of a free port = %d, %v", port, err)
	}
}

func connect(tb testing.TB, url string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), url)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func ask(tb testing.TB, conn *pgx.Conn, sql string) (answer string) {
	tb.Helper()
	if err := conn.QueryRow(tb.Context(), sql).Scan(&answer); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
	return answer
}

// mustBeGone waits until nothing listens at the server's address.
func mustBeGone(tb testing.TB, url string) {
	tb.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	address := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		conn.Close()
	}
	tb.Errorf("something still listens at %s", address)
}

// TestCrashAndRecover: commits survive a crash of the server's processes, and Done waits
// for an unrequested end.
func TestCrashAndRecover(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := connect(t, s.URL()).Exec(t.Context(), "CREATE TABLE kept (n int)"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		ask(t, connect(t, s.URL()), "INSERT INTO kept VALUES (1) RETURNING 'kept'")
		if err := s.Crash(); err != nil {
			t.Fatal(err)
		}
		mustBeGone(t, s.URL())
		if err := s.Recover(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := ask(t, connect(t, s.URL()), "SELECT count(*)::text FROM kept"); got != "2" {
		t.Errorf("%s rows, want 2", got)
	}
	select {
	case <-s.Done():
		t.Error("a crash that was asked for is shown as the end")
	default:
	}
	if err := s.process.Stop(syscall.SIGQUIT, stopTime); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
}

package services_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/porttest"
)

// server is a Postgres at a chosen port. It can follow another one, take its place, and
// crash.
type server struct {
	url, dir string
	owner    *syscall.Credential // nil: this user
	cmd      *exec.Cmd
	process  *process.Process
}

// startPrimary starts an empty server. It is a promoted copy of one that package
// postgres has started: that one's port is among those that the system assigns by
// itself, so after a crash the next standby might not get it.
func startPrimary(t testing.TB, port int) *server {
	t.Helper()
	seed, err := postgres.Start(t.Context(), postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := startStandby(t, seed.URL(), port)
	s.promote(t)
	if err := seed.Close(); err != nil {
		t.Error(err)
	}
	return s
}

// startStandby starts a server that follows the one at primary: it is a copy of its
// data, and gets a stream of its commits. Sessions can read there. startStandby returns
// when the copy answers, connected to the primary or not yet.
func startStandby(t testing.TB, primary string, port int) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "lockstep-standby-") //nolint:usetesting // the server's user cannot enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	s := &server{url: fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port), dir: dir}
	t.Cleanup(func() { s.close(t) })
	conn, err := pgx.Connect(t.Context(), primary)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	from := pgtest.Value[string](t, conn, `SHOW data_directory`)
	err = s.ownAs(from)
	if err == nil {
		err = s.backup(t.Context(), conn, from)
	}
	if err == nil {
		err = s.follow(primary)
	}
	if err == nil {
		err = s.launch(from, port)
	}
	if err != nil {
		t.Fatalf("start standby: %v", err)
	}
	eventually(t, "the standby answers", func() bool {
		select {
		case <-s.process.Done():
			t.Fatalf("the standby has ended: %s", s.process.Output())
		default:
		}
		conn, err := pgx.Connect(t.Context(), s.url)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err == nil
	})
	return s
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

// ownAs gives the server the user that owns another server's data: Postgres refuses
// root.
func (s *server) ownAs(data string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(data)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	s.owner = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	return s.give(s.dir)
}

// give makes the server's user the owner of path.
func (s *server) give(path string) error {
	if s.owner == nil {
		return nil
	}
	return os.Chown(path, int(s.owner.Uid), int(s.owner.Gid))
}

// backup copies the data while its server serves. Concurrent changes are in the
// write-ahead log, which the copy reads from that server when it starts. Postgres's own
// functions make the copy, not pg_basebackup, because a downloaded Postgres lacks that
// program.
func (s *server) backup(ctx context.Context, conn *pgx.Conn, from string) error {
	if _, err := conn.Exec(ctx, `SELECT pg_backup_start('standby', true)`); err != nil {
		return err
	}
	if err := s.copyData(from); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, `SELECT labelfile FROM pg_backup_stop(false)`).Scan(&label); err != nil {
		return err
	}
	return s.write("backup_label", label)
}

// notCopied are the files that each server creates for itself.
var notCopied = map[string]bool{"postmaster.pid": true, "postmaster.opts": true, "standby.signal": true, "backup_label": true}

func (s *server) copyData(from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // dropped since its directory was read
		case errors.Join(err, relErr) != nil:
			return errors.Join(err, relErr)
		case entry.IsDir():
			to := filepath.Join(s.data(), name)
			return errors.Join(os.Mkdir(to, 0o700), s.give(to))
		case notCopied[name], filepath.Dir(name) == "pg_wal", strings.HasPrefix(name, "pg_replslot"):
			return nil
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return s.write(name, string(content))
	})
}

func (s *server) write(name, content string) error {
	path := filepath.Join(s.data(), name)
	return errors.Join(os.WriteFile(path, []byte(content), 0o600), s.give(path))
}

// follow makes the copy a standby of the server at primary.
func (s *server) follow(primary string) error {
	const settings = "postgresql.auto.conf"
	before, err := os.ReadFile(filepath.Join(s.data(), settings))
	if err != nil {
		return err
	}
	// Of two lines for one setting, the last counts.
	return errors.Join(s.write(settings, fmt.Sprintf("%s\nprimary_conninfo = '%s'\n", before, primary)), s.write("standby.signal", ""))
}

// launch starts the program with the arguments of the server that owns the data in
// from, except directory and port.
func (s *server) launch(from string, port int) error {
	line, err := os.ReadFile(filepath.Join(from, "postmaster.opts")) // program "argument" "argument" …
	if err != nil {
		return err
	}
	args := strings.Split(strings.TrimSuffix(strings.TrimSpace(string(line)), `"`), ` "`)
	for i, arg := range args {
		args[i] = strings.TrimSuffix(arg, `"`)
	}
	for i, arg := range args {
		switch arg {
		case "-D":
			args[i+1] = s.data()
		case "-p":
			args[i+1] = strconv.Itoa(port)
		}
	}
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Dir, s.cmd.Env = s.dir, []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	s.process, err = process.Start(s.cmd, syscall.SIGQUIT)
	return err
}

// promote makes a standby a primary, and returns when it accepts writes.
func (s *server) promote(t testing.TB) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var promoted bool
	if err := conn.QueryRow(t.Context(), `SELECT pg_promote(true, 60)`).Scan(&promoted); err != nil || !promoted {
		t.Fatalf("promoted within a minute: %v, %v", promoted, err)
	}
}

// crash ends all processes of the server with SIGKILL, like the loss of its machine: no
// session ends in order, and nothing more is sent.
func (s *server) crash(t testing.TB) {
	t.Helper()
	pid := s.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // so that it starts no more of them
		t.Fatal(err)
	}
	for _, session := range sessions(pid) {
		_ = syscall.Kill(session, syscall.SIGKILL) // it may have ended by itself
	}
	if err := s.process.Stop(syscall.SIGKILL, patience); err != nil {
		t.Fatal(err)
	}
	s.close(t)
}

// sessions returns the processes that a server has started. Only Linux reports them; on
// other systems they end by themselves soon after their parent.
func sessions(pid int) (pids []int) {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	for field := range strings.FieldsSeq(string(list)) {
		if n, err := strconv.Atoi(field); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// close stops the server and deletes its data.
func (s *server) close(t testing.TB) {
	t.Helper()
	var err error
	if s.process != nil {
		err = s.process.Stop(syscall.SIGINT, patience) // a fast shutdown
	}
	if err = errors.Join(err, os.RemoveAll(s.dir)); err != nil {
		t.Error(err)
	}
}

// TestStandbyTakesOver: a standby is a copy that follows the primary, and takes its
// place when the primary is killed with a session open. The next standby takes the
// place of the dead one.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	at := porttest.Port(t)
	primary := startPrimary(t, at)
	primary.exec(t, `CREATE TABLE kept (n int)`)
	standby := startStandby(t, primary.url, porttest.Port(t))
	primary.exec(t, `INSERT INTO kept VALUES (1)`)
	rows := func(s *server, want int) func() bool {
		return func() bool { return s.ask(t, `SELECT count(*) FROM kept`) == want }
	}
	eventually(t, "the standby follows", rows(standby, 1))

	session, err := pgx.Connect(t.Context(), primary.url)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	primary.crash(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := session.Ping(ctx); err == nil {
		t.Error("a session of the killed server answers")
	}
	standby.promote(t)
	standby.exec(t, `INSERT INTO kept VALUES (2)`)

	next := startStandby(t, standby.url, at)
	if next.url != primary.url {
		t.Errorf("the next standby is at %s, want %s", next.url, primary.url)
	}
	standby.exec(t, `INSERT INTO kept VALUES (3)`)
	eventually(t, "the next standby follows", rows(next, 3))
}

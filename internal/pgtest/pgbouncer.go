package pgtest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"example.com/lockstep/internal/local/process"
)

const (
	// bouncerTime bounds the start of a PgBouncer, and its end.
	bouncerTime = 20 * time.Second
	// bouncerPort is a part of the name of a PgBouncer's socket. Several PgBouncers can have the same
	// port, because each has its socket in a directory of its own.
	bouncerPort = "6432"
	// longestRoot is the longest path of a directory in which a PgBouncer has its own directory. The path of
	// the socket has 107 bytes at most.
	longestRoot = 70
)

// PgBouncer starts a PgBouncer that pools transactions, and returns rawURL through it, with the same parameter as
// [Database.Pooled]. Successive transactions of a client get different sessions, as far as there are several. It skips the
// test where PgBouncer is not installed.
func (*Database) PgBouncer(tb testing.TB, rawURL string) string {
	tb.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // which is not in the PATH of Debian's users
	}
	if err != nil {
		tb.Skip("no PgBouncer here (on Debian: pgbouncer)")
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	dir := bouncerDir(tb, u)
	ctx := context.WithoutCancel(tb.Context())                                    // what the test cleans up may still use it
	cmd := exec.CommandContext(ctx, program, filepath.Join(dir, "pgbouncer.ini")) //nolint:gosec // a program of this machine
	if os.Geteuid() == 0 {
		cmd.Args = append(cmd.Args, "-u", "nobody") // it refuses to run as root
	}
	p, err := process.Start(cmd, syscall.SIGKILL)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		_ = p.Stop(syscall.SIGTERM, bouncerTime)
		if tb.Failed() {
			tb.Logf("PgBouncer: %s", p.Output())
		}
	})
	awaitSocket(tb, p, filepath.Join(dir, ".s.PGSQL."+bouncerPort))
	query := u.Query()
	u.Host = ""
	query.Set("host", dir)
	query.Set("port", bouncerPort)
	query.Set("default_query_exec_mode", "exec")
	u.RawQuery = query.Encode()
	return u.String()
}

// bouncerDir makes the directory of a PgBouncer in front of the server of u, with its configuration. The socket will be there,
// so the path is short, and the server's user may write there.
func bouncerDir(tb testing.TB, u *url.URL) (dir string) {
	tb.Helper()
	root := os.TempDir()
	if len(root) > longestRoot {
		root = "/tmp"
	}
	dir, err := os.MkdirTemp(root, "pgbouncer-") //nolint:usetesting // a socket's path has 107 bytes, and tb.TempDir contains the test's name
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	password, _ := u.User.Password()
	users := filepath.Join(dir, "users")
	for file, content := range map[string]string{
		users: fmt.Sprintf("%q %q\n", u.User.Username(), password),
		filepath.Join(dir, "pgbouncer.ini"): fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr =
listen_port = %s
unix_socket_dir = %s
auth_type = trust
auth_file = %s
pool_mode = transaction
server_round_robin = 1
`, u.Hostname(), u.Port(), bouncerPort, dir, users),
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			tb.Fatalf("pgtest: %v", err)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // a directory of a test, for the server's user
		tb.Fatalf("pgtest: %v", err)
	}
	return dir
}

// awaitSocket waits until the process p listens at the socket.
func awaitSocket(tb testing.TB, p *process.Process, path string) {
	tb.Helper()
	deadline := time.After(bouncerTime)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		var dialer net.Dialer
		conn, err := dialer.DialContext(tb.Context(), "unix", path)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-tick.C:
		case <-p.Done():
			tb.Fatalf("pgtest: PgBouncer ended: %s", p.Output())
		case <-deadline:
			tb.Fatalf("pgtest: PgBouncer does not listen: %v: %s", err, p.Output())
		}
	}
}

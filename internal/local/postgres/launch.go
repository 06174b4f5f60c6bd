package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// launches is how many free ports are tried. Another process may take a port between the choice
	// and the server's bind.
	launches = 5
	// pollInterval is the pause between two probes of a starting server.
	pollInterval = 20 * time.Millisecond
	// portTime bounds the wait of a crashed server for its port.
	portTime = 20 * time.Second
	// probeTime bounds one probe.
	probeTime = 2 * time.Second
)

var errDied = errors.New("the server ended")

// initialise creates the data directory. Its databases sort by bytes, and take upper and lower case
// from Unicode. So sort orders and searches have the same results on every machine.
func (s *Server) initialise(ctx context.Context) error {
	ctype := "en_US.UTF-8"
	if runtime.GOOS == "linux" {
		ctype = "C.UTF-8" // every distribution has it
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"),
		"--pgdata="+s.dir.data(), "--username=postgres", "--auth=trust",
		"--encoding=UTF8", "--locale=C", "--lc-ctype="+ctype, "--no-sync")
	var complaints strings.Builder // without the report of progress, which would hide them
	cmd.Dir, cmd.Env, cmd.SysProcAttr, cmd.Stderr = s.dir.path, environment(), s.dir.asOwner(), &complaints
	err := cmd.Run()
	switch {
	case err == nil:
		return nil
	case s.dir.owner != nil && errors.Is(err, fs.ErrPermission): // the error names the program only
		return fmt.Errorf("initdb: %w: Postgres refuses root, and the user with the id %d must be able to enter %s and %s",
			err, s.dir.owner.Uid, s.dir.path, s.bin)
	}
	return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(complaints.String()))
}

// launch starts the server on a port that choose returns, and waits until it answers.
func (s *Server) launch(ctx context.Context, choose func(context.Context) (port int, err error)) error {
	for range launches {
		port, err := choose(ctx)
		if err != nil {
			return err
		}
		err = s.launchAt(ctx, port)
		if !errors.Is(err, errDied) {
			return err
		}
	}
	return fmt.Errorf("%w %d times: %s", errDied, launches, s.process.Output())
}

// earlierPort returns the server's earlier port as soon as it is free. A port may be taken for a moment
// only, for example by an outgoing connection of another process.
func (s *Server) earlierPort(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, portTime)
	defer cancel()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	for {
		var config net.ListenConfig
		l, err := config.Listen(context.WithoutCancel(ctx), "tcp", address) // so that the error is that of the port
		if err == nil {
			return s.port, l.Close()
		}
		if !backoff.Sleep(ctx, pollInterval, nil) {
			return 0, fmt.Errorf("another process has the port: %w", err)
		}
	}
}

// launchAt starts the server on port, and waits until it answers. It returns errDied if the server
// ends at once, for example because the port is taken.
func (s *Server) launchAt(ctx context.Context, port int) (err error) {
	s.port = port
	s.url = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), s.arguments(port)...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.dir.path, environment(), s.dir.asOwner()
	// If this process dies, Postgres quits at once, because no program is left to read the data.
	if s.process, err = process.Start(cmd, syscall.SIGQUIT); err != nil {
		return err
	}
	return s.awaitReady(ctx)
}

func (s *Server) arguments(port int) []string {
	args := []string{
		"-D", s.dir.data(), "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=",
		// Many tests may run in parallel, and each test has pools of its own.
		"-c", "max_connections=300",
		"-c", "timezone=UTC",
	}
	if !s.opts.Sync {
		args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off")
	}
	return args
}

// awaitReady waits until the server answers. It returns errDied if the server ends instead.
func (s *Server) awaitReady(ctx context.Context) error {
	for {
		err := s.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Done():
			return errDied
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w: %w: %s", ctx.Err(), err, s.process.Output())
		case <-time.After(pollInterval):
		}
	}
}

// probe connects to the server. It also checks the data directory, because another Postgres may
// have taken the port and would answer.
func (s *Server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var dir, version string
	err = conn.QueryRow(ctx, `SELECT current_setting('data_directory'), current_setting('server_version')`).Scan(&dir, &version)
	if err != nil {
		return err
	}
	if dir != s.dir.data() {
		return fmt.Errorf("another server answers at %s", s.url)
	}
	s.version, _, _ = strings.Cut(version, " ") // the rest names the distribution's package
	return nil
}

// Forget unsets the variables of Postgres's clients in this process, such as PGSERVICE and PGOPTIONS.
// They are for other servers, and a client adds them to every URL. Call it before [Start].
func Forget() {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name) // fails on an empty name only
		}
	}
}

// environment returns the environment of the server's programs. It has only the two variables that they
// need. The PG* variables of this process must not reach the server, and macOS refuses to start a server
// without a locale.
func environment() []string {
	return []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
}

func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

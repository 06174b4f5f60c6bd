package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Standby starts another server, at port or a free one, that follows s: it is a
// copy of s's data, and s streams its commits to it. Sessions can read there,
// and [Server.Promote] makes it a primary. Standby returns when the copy
// answers, connected to s or not yet.
//
// Postgres's own functions make the copy, not pg_basebackup, because a
// downloaded Postgres lacks that program.
func (s *Server) Standby(ctx context.Context, port int) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	dir, err := newDirectory()
	if err != nil {
		return nil, fmt.Errorf("start standby: %w", err)
	}
	standby := &Server{bin: s.bin, dir: dir, opts: s.opts}
	standby.opts.Port = port
	err = s.backup(ctx, standby.dir)
	if err == nil {
		err = standby.follow(s.url)
	}
	if err == nil {
		err = standby.launch(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("start standby: %w", errors.Join(err, standby.Close()))
	}
	return standby, nil
}

// backup copies s's data while s serves. Concurrent changes are in the
// write-ahead log, which the copy reads from s when it starts.
func (s *Server) backup(ctx context.Context, to *directory) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `SELECT pg_backup_start('standby', true)`); err != nil {
		return err
	}
	if err := copyData(s.dir.data(), to); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, `SELECT labelfile FROM pg_backup_stop(false)`).Scan(&label); err != nil {
		return err
	}
	return to.write("backup_label", label)
}

// notCopied are the files that each server creates for itself.
var notCopied = map[string]bool{"postmaster.pid": true, "postmaster.opts": true, "standby.signal": true, "backup_label": true}

func copyData(from string, to *directory) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		name, relErr := filepath.Rel(from, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // dropped since its directory was read
		case errors.Join(err, relErr) != nil:
			return errors.Join(err, relErr)
		case entry.IsDir():
			return to.mkdir(name)
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
		return to.write(name, string(content))
	})
}

func (d *directory) mkdir(name string) error {
	path := filepath.Join(d.data(), name)
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	return d.give(path)
}

func (d *directory) write(name, content string) error {
	path := filepath.Join(d.data(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return err
	}
	return d.give(path)
}

// give makes the server's user the owner of path.
func (d *directory) give(path string) error {
	if d.owner == nil {
		return nil
	}
	return os.Chown(path, int(d.owner.Uid), int(d.owner.Gid))
}

// follow makes the copy a standby of the server at primary.
func (s *Server) follow(primary string) error {
	const settings = "postgresql.auto.conf"
	before, err := os.ReadFile(filepath.Join(s.dir.data(), settings))
	if err != nil {
		return err
	}
	// Of two lines for one setting, the last counts.
	err = s.dir.write(settings, fmt.Sprintf("%s\nprimary_conninfo = '%s'\n", before, primary))
	return errors.Join(err, s.dir.write("standby.signal", ""))
}

// Promote makes a standby a primary, and returns when it accepts writes.
func (s *Server) Promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var promoted bool
	err = conn.QueryRow(ctx, `SELECT pg_promote(true, 60)`).Scan(&promoted)
	if err == nil && !promoted {
		err = errors.New("not promoted within a minute")
	}
	return err
}

// Crash ends all processes of the server with SIGKILL, like the loss of its
// machine: no session ends in order, and nothing more is sent. Close deletes
// the data.
func (s *Server) Crash() error {
	file, err := os.ReadFile(filepath.Join(s.dir.data(), "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(file), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil { // so that it starts no more of them
		return err
	}
	for _, session := range sessions(pid) {
		_ = syscall.Kill(session, syscall.SIGKILL) // it may have ended by itself
	}
	return s.process.Stop(syscall.SIGKILL, stopTime)
}

// sessions returns the processes that a server has started. Only Linux reports
// them; on other systems they end by themselves soon after their parent.
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

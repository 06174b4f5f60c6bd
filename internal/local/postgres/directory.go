package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	prefix = "lockstep-postgres-"
	// settled is the age from which a directory without a lock counts as left behind. A process
	// that still lives would have locked the directory before that age.
	settled = time.Minute
)

// directory holds the files of one server. This process holds a lock on the directory while it uses
// it. The kernel releases the lock when the process dies. A directory without a lock is left
// behind.
type directory struct {
	path  string
	owner *syscall.Credential // nil if this user owns the directory
	lock  *os.File
}

// newDirectory first removes the directories of killed processes. Then it creates an empty
// directory that the server's user owns.
func newDirectory(inMemory bool) (*directory, error) {
	root, err := filepath.Abs(temporary(inMemory)) // the server's programs run in another directory
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, fmt.Errorf("temporary directory: %w", err)
	}
	sweep(root, prefix)
	var owner *syscall.Credential
	if os.Geteuid() == 0 { // Postgres refuses root
		if owner, err = unprivileged(); err != nil {
			return nil, err
		}
	}
	path, err := os.MkdirTemp(root, prefix)
	if err != nil {
		return nil, err
	}
	d := &directory{path: path, owner: owner}
	if err := d.claim(); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	return d, nil
}

func (d *directory) data() string { return filepath.Join(d.path, "data") }

// asOwner returns the attributes that run the server's programs as the owner.
func (d *directory) asOwner() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: d.owner}
}

func (d *directory) claim() (err error) {
	if d.lock, err = tryLock(d.path); err != nil || d.owner == nil {
		return err
	}
	return os.Chown(d.path, int(d.owner.Uid), int(d.owner.Gid))
}

func (d *directory) remove() error {
	err := os.RemoveAll(d.path)
	if d.lock != nil {
		_ = d.lock.Close() // already closed by an earlier remove, or open for reading only
	}
	return err
}

// sweep removes the directories with this prefix in root that were left behind. It ignores failures,
// because it is only housekeeping.
func sweep(root, prefix string) {
	found, _ := filepath.Glob(filepath.Join(root, prefix+"*")) // fails on a malformed pattern only
	for _, path := range found {
		info, err := os.Stat(path)
		if err != nil || time.Since(info.ModTime()) < settled {
			continue
		}
		if lock, err := tryLock(path); err == nil {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}

// tryLock fails at once if a living process holds the lock.
func tryLock(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// unprivileged returns a user that owns little. This is the user postgres, or nobody if there is no
// user postgres.
func unprivileged() (*syscall.Credential, error) {
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("postgres refuses to run as root, and there is no user postgres or nobody: %w", err)
	}
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, fmt.Errorf("user %s: %w", u.Username, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

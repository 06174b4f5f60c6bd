package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

const (
	// downloaded is the version to download. It is one major version behind the newest, as hosted
	// Postgres is.
	downloaded = embeddedpostgres.V17
	// downloadTime bounds the download of some 15 MB and the unpacking.
	downloadTime = 5 * time.Minute
	// unpacking is the prefix of directories of downloads that are under way.
	unpacking = "unpack-"
)

// download returns the directory of the downloaded programs. Only the first call on a machine
// downloads them.
func download(ctx context.Context, log io.Writer) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	return downloadTo(ctx, cache, log, embeddedpostgres.DefaultConfig())
}

func downloadTo(ctx context.Context, cache string, log io.Writer, config embeddedpostgres.Config) (string, error) {
	home := filepath.Join(cache, "postgres-"+string(downloaded))
	bin := filepath.Join(home, "bin")
	if complete(bin) {
		return bin, nil
	}
	fmt.Fprintf(log, "downloading Postgres %s to %s, once\n", downloaded, home)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	if err := os.Chmod(cache, 0o755); err != nil { // whatever the umask
		return "", err
	}
	// The programs are unpacked in another directory and then moved as a whole, so that another
	// process never finds only some of them. An interrupted download may leave the directory.
	sweep(cache, unpacking)
	aside, err := os.MkdirTemp(cache, unpacking)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(aside)
	lock, err := tryLock(aside)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := fetch(ctx, aside, config); err != nil {
		return "", err
	}
	if err := open(filepath.Join(aside, "postgres")); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(aside, "postgres"), home); err != nil && !complete(bin) {
		return "", err
	}
	return bin, nil
}

// fetch unpacks the programs to dir/postgres. The library unpacks them only as a part of starting a
// server. If this process ended meanwhile, that server would run on, because pg_ctl detaches it. So
// fetch makes the library fail right after the unpacking: the directory for the server's files is then
// a file, initdb. fetch ignores the library's error if the programs are there.
func fetch(ctx context.Context, dir string, config embeddedpostgres.Config) error {
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	target := filepath.Join(dir, "postgres")
	library := embeddedpostgres.NewDatabase(config.Version(downloaded).Port(uint32(port)).Logger(io.Discard).
		CachePath(filepath.Join(dir, "archive")).RuntimePath(filepath.Join(target, "bin", "initdb")).BinariesPath(target))
	finished := make(chan error, 1)
	go func() { finished <- library.Start() }()
	select { // the library does not take a context
	case err = <-finished:
	case <-ctx.Done():
		return ctx.Err()
	}
	if complete(filepath.Join(target, "bin")) {
		return nil
	}
	return errors.Join(err, errors.New("the archive holds no initdb and postgres"))
}

// open lets every user read the files and run the programs in dir, whatever the umask was when they were
// unpacked.
func open(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()
		return os.Chmod(path, mode|mode>>3&0o050|mode>>6&0o005) // as the owner's, without the right to write
	})
}

// cacheDir returns a directory that the server's user can reach. A server that root starts runs as
// another user, who cannot enter root's home. So root's cache is in /var.
func cacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/lockstep", nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "lockstep"), err
}

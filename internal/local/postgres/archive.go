package postgres

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
)

const archivePrefix = "initdb-"

// pack keeps dir's data in the archive at path. It writes another file, waits until that
// is on the disk, and renames it, so that no process ever finds a part, also after a crash
// of the machine. All other archives are removed: the cache holds one, of 40 MB.
func pack(dir *directory, path string) (err error) {
	cache := filepath.Dir(path)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	others, _ := filepath.Glob(filepath.Join(cache, archivePrefix+"*")) // fails on a malformed pattern only
	for _, other := range others {
		_ = os.Remove(other) // another process may have removed it
	}
	aside, err := os.CreateTemp(cache, archivePrefix+"*.part")
	if err != nil {
		return err
	}
	defer os.Remove(aside.Name()) // it has another name by then, unless a step failed
	w := tar.NewWriter(aside)
	if err := errors.Join(w.AddFS(os.DirFS(dir.data())), w.Close(), aside.Sync(), aside.Close()); err != nil {
		return err
	}
	return os.Rename(aside.Name(), path)
}

// unpack creates dir's data from the archive at path. It leaves a part behind if it fails.
func unpack(path string, dir *directory) error {
	archive, err := os.Open(path)
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := os.Mkdir(dir.data(), 0o700); err != nil {
		return err
	}
	data, err := os.OpenRoot(dir.data())
	if err != nil {
		return err
	}
	defer data.Close()
	if err := dir.give(data, "."); err != nil {
		return err
	}
	r := tar.NewReader(archive)
	for entry, err := r.Next(); !errors.Is(err, io.EOF); entry, err = r.Next() {
		if err != nil {
			return err
		}
		name := filepath.Clean(entry.Name) // that of a directory ends with a slash
		if err := extract(r, entry.Typeflag, data, name); err != nil {
			return err
		}
		if err := dir.give(data, name); err != nil {
			return err
		}
	}
	return nil
}

// extract gives all files the rights that initdb gives them.
func extract(from io.Reader, kind byte, to *os.Root, name string) error {
	if kind == tar.TypeDir {
		return to.Mkdir(name, 0o700)
	}
	f, err := to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

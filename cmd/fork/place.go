package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// checkOutside refuses a directory in the repository at src. git would list a fork there as a new
// file of the repository.
func checkOutside(src, dir string) error {
	from, err := realPath(src)
	if err != nil {
		return err
	}
	to, err := realPath(dir)
	if err != nil {
		return err
	}
	if to == from || strings.HasPrefix(to, from+string(filepath.Separator)) {
		return fmt.Errorf("%s is in the repository that the fork is made from; take a folder next to it, such as ../%s", dir, filepath.Base(dir))
	}
	return nil
}

// realPath returns the absolute path of name without symbolic links. The last elements of the path
// may be absent.
func realPath(name string) (string, error) {
	whole, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	found, err := filepath.EvalSymlinks(whole)
	if !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	parent, err := realPath(filepath.Dir(whole))
	return filepath.Join(parent, filepath.Base(whole)), err
}

// checkEmpty refuses a directory with anything in it.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty, and fork overwrites nothing", dir)
	}
	return nil
}

package process

import (
	"errors"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// Profile profiles this process until stop is called.
func Profile(name string) (stop func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}

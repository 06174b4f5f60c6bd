//go:build unix

package localpubsub

import (
	"errors"
	"os"
	"syscall"
)

// lockFile locks a file for this process, until the process ends at the latest.
// It does not wait.
func lockFile(file *os.File) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another server has the file")
	}
	return err
}

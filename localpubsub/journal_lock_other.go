//go:build !unix

package localpubsub

import (
	"errors"
	"os"
)

// lockFile is supported on Unix only.
func lockFile(*os.File) error {
	return errors.New("a server that keeps its state in a file needs a Unix")
}

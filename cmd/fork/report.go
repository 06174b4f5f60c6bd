package main

import (
	"fmt"
	"io"
	"time"
)

func report(out io.Writer, dir, module string, files []file, took time.Duration) error {
	fmt.Fprintf(out, "%d files in %.0f s\n", len(files), took.Seconds())
	_, err := fmt.Fprintf(out, "%s is now module %s. Next: cd %s && make test\n", dir, module, dir)
	return err
}

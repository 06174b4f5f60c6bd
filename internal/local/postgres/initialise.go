package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// initialise creates the data directory. initdb takes most of the time of a start, and
// makes the same directory for all servers of an installation: so the first start keeps
// it in cache, and the others copy it. A cache that cannot be used costs only that time.
func (s *Server) initialise(ctx context.Context, cache string) error {
	archive, err := archiveOf(s.bin, cache)
	if err != nil {
		return err
	}
	if unpack(archive, s.dir) == nil {
		return nil
	}
	if err := os.RemoveAll(s.dir.data()); err != nil {
		return err
	}
	if err := s.initdb(ctx); err != nil {
		return err
	}
	_ = pack(s.dir, archive) // the next start tries again
	return nil
}

// initdb makes the data directory that initialise keeps.
func (s *Server) initdb(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), append(initdbArguments(), "--pgdata="+s.dir.data())...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = s.dir.path, environment(), s.dir.asOwner()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// initdbArguments sort by bytes, with case rules from Unicode: that gives the same order
// and the same searches on every machine.
func initdbArguments() []string {
	ctype := "en_US.UTF-8"
	if runtime.GOOS == "linux" {
		ctype = "C.UTF-8" // every distribution has it
	}
	return []string{"--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--lc-ctype=" + ctype, "--no-sync"}
}

// archiveOf returns the file in cache for a data directory that these programs made. Its
// name changes with the programs and the arguments: an upgrade of Postgres has another.
func archiveOf(bin, cache string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, bin, initdbArguments())
	for _, program := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(bin, program))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, info.Size(), info.ModTime().UnixNano())
	}
	return filepath.Join(cache, fmt.Sprintf("%s%x.tar", archivePrefix, sum.Sum(nil)[:8])), nil
}

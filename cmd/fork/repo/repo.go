// Package repo has what the commands share that copy or change a repository: its module path, its
// files and migrations, its git commands, and the names that its code can have.
package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Module returns the module path of the repository at root.
func Module(root string) (string, error) {
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read module path, in the root of the repository: %w", err)
	}
	for line := range strings.Lines(string(gomod)) {
		if module, found := strings.CutPrefix(line, "module "); found {
			return strings.TrimSpace(module), nil
		}
	}
	return "", errors.New("read module path: no module line in go.mod")
}

// LastOfOrigin is the last number that this repository gives to a migration of a service. The
// migrations of a fork have greater numbers, so a later version of this repository never takes one
// of them. The first number after LastOfOrigin is that of the migration that drops the tables of
// the second aggregate.
const LastOfOrigin = 8999

// firstOfFork is the first number that NextMigration returns.
const firstOfFork = LastOfOrigin + 2

// NextMigration returns the number of a fork's next migration in a folder, with five digits. The
// number is greater than that of each migration in the folder, and than all numbers of this
// repository.
func NextMigration(folder string) (string, error) {
	found, err := filepath.Glob(filepath.Join(folder, "*.sql"))
	if err != nil {
		return "", err
	}
	next := firstOfFork
	for _, migration := range found {
		number, _, _ := strings.Cut(filepath.Base(migration), "_")
		if n, err := strconv.Atoi(number); err == nil {
			next = max(next, n+1)
		}
	}
	return fmt.Sprintf("%05d", next), nil
}

// Record is the file of a fork that has the commit of its origin, and the commands that made the fork:
// that of make fork, and one for each aggregate of make aggregate. An upgrade runs them again.
const Record = ".forked"

// Write writes a file, and makes its folder.
func Write(name, text string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// SortedLines returns the text with its lines sorted.
func SortedLines(text string) string { return strings.Join(slices.Sorted(strings.Lines(text)), "") }

// gitTimeout bounds one git command on local files.
const gitTimeout = time.Minute

// Git runs a git command in the repository of dir, and returns its output.
func Git(ctx context.Context, dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, gitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir, cmd.Env = dir, Environment()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}

// named are environment variables that tell git which repository to work in. Git uses them in a
// hook or in a linked worktree. `git rev-parse --local-env-vars` lists them.
var named = []string{
	"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_GRAFT_FILE", "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE",
	"GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_WORK_TREE",
}

// Environment returns the environment for a command that must use the repository of its working
// directory, and no other repository. A GOWORK of the shell cannot name the modules of a new fork.
func Environment() []string {
	without := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(named, name)
	})
	return append(without, "GOWORK=off") // the last value counts
}

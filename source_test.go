package lockstep_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"example.com/lockstep/cmd/fork/repo"
)

// A source is a repository of a test.
type source struct {
	*testing.T
	dir string
}

func (s source) write(name, text string) {
	s.Helper()
	name = filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		s.Fatal(err)
	}
}

func (s source) git(args ...string) string {
	s.Helper()
	out, err := s.command("git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...).CombinedOutput()
	if err != nil {
		s.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (s source) commit() {
	s.Helper()
	s.git("add", "-A")
	s.git("commit", "--quiet", "--allow-empty", "-m", "a commit")
}

func (s source) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.Context(), name, args...)
	cmd.Dir = s.dir
	// Without the user's configuration, which may have hooks, and sign each commit.
	cmd.Env = append(repo.Environment(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org")
	return cmd
}

// TestTestsTouchNoOtherRepository: git names the repository of a hook, or of a linked worktree, in the environment. And a
// user may have hooks for all repositories.
func TestTestsTouchNoOtherRepository(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("not installed: git")
	}
	other, mine := source{t, t.TempDir()}, source{t, t.TempDir()}
	other.git("init", "--quiet")
	other.commit()
	other.write("hooks/pre-commit", "#!/bin/sh\nexit 1\n")
	other.git("config", "--file=config", "core.hooksPath", filepath.Join(other.dir, "hooks"))
	before := other.git("rev-parse", "HEAD")
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(other.dir, "config"))
	t.Setenv("GIT_DIR", filepath.Join(other.dir, ".git"))
	mine.git("init", "--quiet")
	mine.commit()
	mine.git("tag", "mine")
	if after := other.git("rev-parse", "HEAD"); after != before || other.git("tag") != "" {
		t.Errorf("another repository had the commit %s, and has %s and the tags %q", before, after, other.git("tag"))
	}
}

package lockstep_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"example.com/lockstep/cmd/fork/repo"
)

// A source is a repository that could be tagged as v1.2.3.
type source struct {
	*testing.T
	dir string
}

func newSource(t *testing.T) source {
	t.Helper()
	for _, tool := range []string{"bash", "git", "awk", "sed"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("not installed: ", tool)
		}
	}
	s := source{t, t.TempDir()}
	script, err := os.ReadFile(".ci/tag")
	if err != nil {
		t.Fatal(err)
	}
	s.write(".ci/tag", string(script))
	s.write("internal/command/version.go", "package command\n\nconst Version = \"v1.2.3\"\n")
	s.write("CHANGELOG.md", "# Changelog\n\n## [v1.2.3] - 2026-11-24\n\n### Added\n\n- A thing.\n\n## [v1.2.2] - 2026-11-01\n\n- Older.\n")
	s.write("go.mod", "module example.org/pair\n\nrequire (\n\texample.org/pair/localpubsub v1.2.3\n)\n")
	s.write("lab/go.mod", "module example.org/pair/lab\n\nrequire (\n\texample.org/pair v1.2.3\n\texample.org/pair/localpubsub v1.2.3\n)\n")
	s.git("init", "--quiet", "--initial-branch=main")
	s.commit()
	return s
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
	other := newSource(t)
	other.write("hooks/pre-commit", "#!/bin/sh\nexit 1\n")
	other.git("config", "--file=config", "core.hooksPath", filepath.Join(other.dir, "hooks"))
	before := other.git("rev-parse", "HEAD")
	t.Setenv("GIT_CONFIG_GLOBAL", filepath.Join(other.dir, "config"))
	t.Setenv("GIT_DIR", filepath.Join(other.dir, ".git"))
	newSource(t).git("tag", "mine")
	if after := other.git("rev-parse", "HEAD"); after != before || other.git("tag") != "" {
		t.Errorf("another repository had the commit %s, and has %s and the tags %q", before, after, other.git("tag"))
	}
}

func TestTag(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	out, err := s.command("bash", ".ci/tag", "v1.2.3").Output() // a shell may warn of a locale that it does not have
	want := "git push origin localpubsub/v1.2.3\ngit push origin v1.2.3\ngit push origin lab/v1.2.3\n"
	if err != nil || string(out) != want {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tag := range []string{"localpubsub/v1.2.3", "v1.2.3", "lab/v1.2.3"} {
		if notes := s.git("tag", "-l", "--format=%(contents)", tag); !strings.Contains(notes, "### Added\n\n- A thing.") || strings.Contains(notes, "Older") {
			t.Errorf("notes of %s:\n%s", tag, notes)
		}
	}
}

// TestTagRefuses: each fault is named, and no tag is made.
func TestTagRefuses(t *testing.T) {
	t.Parallel()
	for want, edit := range map[string]func(s source) (version string){
		"usage":                        func(source) string { return "1.2.3" },
		"the working tree has changes": func(s source) string { s.write("new", "x"); return "v1.2.3" },
		"internal/command/version.go":  func(source) string { return "v1.2.4" },
		"CHANGELOG.md": func(s source) string {
			s.write("CHANGELOG.md", "## [v1.2.3] - unreleased\n")
			s.commit()
			return "v1.2.3"
		},
		"lab/go.mod does not require example.org/pair v1.2.3": func(s source) string {
			s.write("lab/go.mod", "module example.org/pair/lab\n\nrequire (\n\texample.org/pair v0.0.0\n\texample.org/pair/localpubsub v1.2.3\n)\n")
			s.commit()
			return "v1.2.3"
		},
		"a tag lab/v1.2.3 already": func(s source) string { s.git("tag", "lab/v1.2.3"); return "v1.2.3" },
	} {
		s := newSource(t)
		version := edit(s)
		before := s.git("tag")
		out, err := s.command("bash", ".ci/tag", version).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) || s.git("tag") != before {
			t.Errorf("%s: %v, tags %q\n%s", want, err, s.git("tag"), out)
		}
	}
}

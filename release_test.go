package lockstep_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// newSource returns a repository that could be tagged as v1.2.3.
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

// TestTagTakesItsOwnRepository: with a CDPATH, cd looks for a folder there first.
func TestTagTakesItsOwnRepository(t *testing.T) {
	t.Parallel()
	s, other := newSource(t), newSource(t)
	tag := s.command("bash", ".ci/tag", "v1.2.3")
	tag.Env = append(tag.Env, "CDPATH="+other.dir)
	if out, err := tag.CombinedOutput(); err != nil || other.git("tag") != "" {
		t.Errorf("%v\n%s another repository has the tags %q", err, out, other.git("tag"))
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

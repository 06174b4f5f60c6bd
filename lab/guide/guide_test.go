package guide

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestChangeGuide does each chapter of the change guide in a copy of the repository.
//
// The quick form makes the edits, generates the code of proto/, and has go vet look at the
// changed packages and their tests. In full (LOCKSTEP_FULL) it also runs the commands, in the
// order of the text. The repository is that of LOCKSTEP_GUIDE, or this one: .ci/full gives a
// fork in other words.
func TestChangeGuide(t *testing.T) {
	t.Parallel()
	root, tools := repository(t)
	chapters, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(chapters) == 0 {
		t.Fatal("no chapter")
	}
	for _, chapter := range chapters {
		t.Run(chapter.Title, func(t *testing.T) {
			t.Parallel()
			if len(chapter.Steps) == 0 {
				t.Fatal("a chapter without a step")
			}
			c := copied(t, root, tools)
			if os.Getenv("LOCKSTEP_FULL") != "" {
				c.follow(t, chapter)
				return
			}
			c.edit(t, chapter)
			c.vet(t)
		})
	}
}

// repository returns the folder of the repository whose guide is followed, and that of the
// tools of `make generate`.
func repository(t *testing.T) (root, tools string) {
	t.Helper()
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tools = filepath.Join(here, "build", "bin")
	for _, name := range []string{"buf", "protoc-gen-go", "protoc-gen-go-grpc"} {
		if _, err := os.Stat(filepath.Join(tools, name)); err != nil {
			t.Skip("the tools of `make generate` are not built")
		}
	}
	return cmp.Or(os.Getenv("LOCKSTEP_GUIDE"), here), tools
}

// rootCopy is a copy of the repository.
type rootCopy struct{ of, dir, tools string }

// copied copies what git would of the repository at root, and makes a repository of the copy.
func copied(t *testing.T, root, tools string) rootCopy {
	t.Helper()
	// A person has the copy and its neighbours in one folder.
	c := rootCopy{of: root, dir: filepath.Join(t.TempDir(), filepath.Base(root)), tools: tools}
	c.run(t, root, `mkdir -p "$COPY/build" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$COPY"`)
	if err := os.Symlink(tools, filepath.Join(c.dir, "build", "bin")); err != nil {
		t.Fatal(err)
	}
	c.run(t, c.dir, `git init -q && git add -A && git commit -qm "before"`)
	return c
}

// run runs a script in dir.
func (c rootCopy) run(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "COPY="+c.dir, "PATH="+c.tools+string(os.PathListSeparator)+os.Getenv("PATH"),
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com",
		"LOCKSTEP_FULL=", "LOCKSTEP_GUIDE=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// follow does a chapter as a person would.
func (c rootCopy) follow(t *testing.T, chapter Chapter) {
	t.Helper()
	for _, step := range chapter.Steps {
		if _, err := step.Apply(c.dir); err != nil {
			t.Fatal(err)
		}
		if step.File == "" {
			t.Logf("%s:%d: %s", Document, step.Line, step.Text)
			c.run(t, c.dir, step.Text)
		}
	}
}

// edit makes the edits of a chapter, and generates the code of proto/.
func (c rootCopy) edit(t *testing.T, chapter Chapter) {
	t.Helper()
	proto := false
	for _, step := range chapter.Steps {
		name, err := step.Apply(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		proto = proto || path.Ext(name) == ".proto"
	}
	if proto {
		c.run(t, filepath.Join(c.dir, "proto"), "buf lint && buf generate")
	}
}

// vet has go vet look at the changed packages, as if they stood in the place of those that were
// copied: all other packages are compiled already.
func (c rootCopy) vet(t *testing.T) {
	t.Helper()
	replaced, packages := map[string]string{}, map[string]bool{}
	err := filepath.WalkDir(c.dir, func(name string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && (entry.Name() == ".git" || name == filepath.Join(c.dir, "build")) {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		below, err := filepath.Rel(c.dir, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if was, err := os.ReadFile(filepath.Join(c.of, below)); err != nil || !bytes.Equal(was, text) {
			replaced[filepath.Join(c.of, below)] = name
			packages["./"+filepath.ToSlash(filepath.Dir(below))] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) == 0 {
		return
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	c.run(t, c.of, "go vet -overlay "+list+" "+strings.Join(slices.Sorted(maps.Keys(packages)), " "))
}

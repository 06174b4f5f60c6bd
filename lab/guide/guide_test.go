// Package guide_test follows the change guide in copies of the repository.
package guide_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/lockstep/cmd/fork/guide"
)

// TestChangeGuide does each chapter of the change guide in a copy of the repository.
//
// It makes the edits, generates the code of proto/, and has go vet look at the changed packages
// and their tests. With -short it leaves go vet out, which compiles the pair once more. In full
// (LOCKSTEP_FULL) it also runs the commands, in the order of the text. The repository is that of
// LOCKSTEP_GUIDE, or this one: .ci/full gives a fork in other words.
func TestChangeGuide(t *testing.T) {
	t.Parallel()
	root, tools := repository(t)
	chapters, err := guide.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(chapters) == 0 {
		t.Fatal("no chapter")
	}
	switch library, err := guide.ReadChapter(root, existing); {
	case err == nil:
		chapters = append(chapters, library)
	case !errors.Is(err, fs.ErrNotExist): // a fork has no such document
		t.Fatal(err)
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
			if !testing.Short() {
				c.vet(t)
			}
		})
	}
}

// TestTheSizeOfAChangeIsCounted compares the number of edits that a chapter begins with, and that of its files, with its blocks.
func TestTheSizeOfAChangeIsCounted(t *testing.T) {
	t.Parallel()
	root, _ := repository(t)
	chapters, err := guide.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	chapter, err := guide.Find(chapters, "Add a field")
	if err != nil {
		t.Fatal(err)
	}
	places, testPlaces, files, testFiles := 0, 0, map[string]bool{}, map[string]bool{}
	for _, s := range chapter.Steps {
		if len(s.Edits) == 0 {
			continue
		}
		places, files[s.File] = places+len(s.Edits), true
		if strings.HasSuffix(s.File, "_test.go") {
			testPlaces, testFiles[s.File] = testPlaces+len(s.Edits), true
		}
	}
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(guide.Document)))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%d places in %d files by hand, of which %d places in %d files are tests", places, len(files), testPlaces, len(testFiles))
	if !strings.Contains(string(text), want) {
		t.Errorf("%s does not say %q of the chapter %s", guide.Document, want, chapter.Title)
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
			if os.Getenv("CI") != "" {
				t.Fatalf("the tools of `make generate` are not built: %v", err)
			}
			t.Skip("the tools of `make generate` are not built")
		}
	}
	return cmp.Or(os.Getenv("LOCKSTEP_GUIDE"), here), tools
}

// rootCopy is a copy of the repository.
type rootCopy struct{ dir, tools string }

// copied copies what git would of the repository at root, and makes a repository of the copy.
func copied(t *testing.T, root, tools string) rootCopy {
	t.Helper()
	// A person has the copy and its neighbours in one folder. Its own name is none of those in the
	// text, as that of a fork at root may be.
	c := rootCopy{dir: filepath.Join(t.TempDir(), "repository"), tools: tools}
	c.run(t, root, `mkdir -p "$COPY/build" && git ls-files --cached --others --exclude-standard | tar -cf - -T - | tar -xf - -C "$COPY"`)
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
		"LOCKSTEP_FULL=", "LOCKSTEP_GUIDE=", "GOFLAGS=-trimpath") // what is compiled for one copy serves the next
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// follow does a chapter as a person would.
func (c rootCopy) follow(t *testing.T, chapter guide.Chapter) {
	t.Helper()
	for _, step := range chapter.Steps {
		if _, err := step.Apply(c.dir); err != nil {
			t.Fatal(err)
		}
		if step.File == "" {
			t.Logf("%s, line %d: %s", chapter.Title, step.Line, step.Text)
			c.run(t, c.dir, step.Text)
		}
	}
}

// edit makes the edits of a chapter, and generates the code of proto/.
func (c rootCopy) edit(t *testing.T, chapter guide.Chapter) {
	t.Helper()
	if err := chapter.Edit(t.Context(), c.dir); err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(chapter.Steps, func(s guide.Step) bool { return path.Ext(s.File) == ".proto" }) {
		c.run(t, filepath.Join(c.dir, "proto"), "buf lint && buf generate")
	}
}

// vet has go vet look at the packages with changed files, new ones too.
func (c rootCopy) vet(t *testing.T) {
	t.Helper()
	// The example is a module of its own, which lacks go.sum until its chapter's commands have run.
	c.run(t, c.dir, `git add -A && git diff --cached --name-only --diff-filter=d -- '*.go' ':!lab/guide/testdata' |
		xargs -r dirname | sort -u | sed 's,^,./,' | xargs -r go vet`)
}

package guide

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const fence = "```"

func TestStepsAreRead(t *testing.T) {
	t.Parallel()
	chapters, err := parse(Document, "# Guide\n\n## A field\n\nThe row, in [`a.go`](../a.go), and the test,\nin [`b.go`](../b.go):\n\n"+
		fence+"diff\n+x\n y\n@@ func f\n-z\n"+fence+"\n\nA new file, `m/NNNNN_x.sql`:\n\n"+fence+"sql\nSELECT 1;\n"+fence+
		"\n\n"+fence+"console\nlook\n"+fence+"\n\n### Then\n\n"+fence+"sh\nmake generate\n"+fence+"\n\n<!-- tested with: git diff -->\n", "##")
	if err != nil {
		t.Fatal(err)
	}
	if len(chapters) != 1 || chapters[0].Title != "A field" || len(chapters[0].Steps) != 4 {
		t.Fatalf("chapters %+v", chapters)
	}
	steps := chapters[0].Steps
	if s := steps[0]; s.File != "b.go" || strings.Join(s.Edits, "|") != "+x\n y|-z" || s.Line != 8 {
		t.Errorf("edits %+v", s)
	}
	if s := steps[1]; s.File != "m/NNNNN_x.sql" || s.Text != "SELECT 1;\n" || s.Edits != nil {
		t.Errorf("new file %+v", s)
	}
	if s := steps[2]; s.File != "" || s.Text != "make generate\n" {
		t.Errorf("commands %+v", s)
	}
	if s := steps[3]; s.File != "" || s.Text != "git diff\n" {
		t.Errorf("hidden command %+v", s)
	}
}

func TestADocumentOfOneChapterIsRead(t *testing.T) {
	t.Parallel()
	root, text := t.TempDir(), "# A library\n\n## Then\n\n"+fence+"sh\nmake generate\n"+fence+"\n"
	for says, text := range map[string]string{"": text, "has 2 titles": text + "\n# Another\n", "has 0 titles": "A library\n"} {
		if err := os.WriteFile(filepath.Join(root, "a.md"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadChapter(root, "a.md")
		switch {
		case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
			t.Errorf("%q: %v", text, err)
		case says == "" && (err != nil || c.Title != "A library" || len(c.Steps) != 1 || c.Steps[0].Part != "Then"):
			t.Errorf("chapter %+v, %v", c, err)
		}
	}
}

func TestAGuideThatCannotBeFollowedIsRefused(t *testing.T) {
	t.Parallel()
	for says, text := range map[string]string{
		"without a language":       "## A\n\n" + fence + "\nx\n" + fence + "\n",
		"links to no file":         "## A\n\nSee [`a.go`](../a.go).\n\nThe edit:\n\n" + fence + "diff\n x\n" + fence + "\n",
		"names no new file":        "## A\n\nThe file `a.go`:\n\n" + fence + "go\npackage a\n" + fence + "\n",
		"before the first chapter": fence + "sh\nls\n" + fence + "\n",
		"no end":                   "## A\n\n" + fence + "sh\nls\n",
	} {
		if _, err := parse(Document, text, "##"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want one that says %q", text, err, says)
		}
	}
}

func TestAnEditHasOnePlace(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	file := filepath.Join(root, "a.go")
	const before = "package a\n\ntype t struct {\n\tx   int\n\ty   int\n}\n\nfunc f() {}\nfunc f2() {}\n\nvar a, b = 1, 1\n"
	if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, edit := range map[string]string{
		"0 times":              " z int\n+w int",
		"4 times":              "-",
		"has no line":          "+w int",
		"expected declaration": " var a, b = 1, 1\n+w",
		"it is there already":  "",
	} {
		s := Step{Line: 7, File: "a.go", Edits: []string{edit}}
		if edit == "" {
			s.Edits = nil
		}
		_, err := s.Apply(root)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want one that says %q", edit, err, says)
		}
	}
	if is, err := os.ReadFile(file); err != nil || string(is) != before {
		t.Errorf("a refused edit wrote: %s", is)
	}
	s := Step{File: "a.go", Edits: []string{" x int\n+longer string", "-func f2() {}\n+func f3() {}"}}
	if _, err := s.Apply(root); err != nil {
		t.Fatal(err)
	}
	const after = "package a\n\ntype t struct {\n\tx      int\n\tlonger string\n\ty      int\n}\n\nfunc f()  {}\nfunc f3() {}\n\nvar a, b = 1, 1\n"
	if is, err := os.ReadFile(file); err != nil || string(is) != after {
		t.Errorf("the file is\n%s(%v), want\n%s", is, err, after)
	}
}

func TestMigrationsAreNumbered(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, want := range []string{"m/09001_x.sql", "m/09002_x.sql"} {
		name, err := Step{File: "m/NNNNN_x.sql", Text: "SELECT 1;\n"}.Apply(root)
		if err != nil || name != want {
			t.Errorf("%s (%v), want %s", name, err, want)
		}
	}
}

func TestADiffMayHaveSeveralFiles(t *testing.T) {
	t.Parallel()
	chapters, err := parse(Document, "## A\n\nThese:\n\n"+fence+"diff\n+++ a.go\n-x\n@@\n-y\n+++ b.go\n-z\n"+fence+"\n\n"+
		fence+"sh\ngit rm -q '*x*'\nsed -i '/x/d' a.go\n"+fence+"\n\n"+fence+"sh\nsed -i '/x/d' a.go\nmake fmt\n"+fence+"\n", "##")
	if err != nil {
		t.Fatal(err)
	}
	steps := chapters[0].Steps
	if len(steps) != 4 {
		t.Fatalf("steps %+v", steps)
	}
	for i, want := range []struct {
		file, edits string
		line        int
		removes     bool
	}{{"a.go", "-x|-y", 6, false}, {"b.go", "-z", 10, false}, {"", "", 14, true}, {"", "", 19, false}} {
		s := steps[i]
		if s.File != want.file || strings.Join(s.Edits, "|") != want.edits || s.Line != want.line || s.removes() != want.removes {
			t.Errorf("step %d: %+v, removes %t; want %+v", i, s, s.removes(), want)
		}
	}
}

func TestAnEditElidesLines(t *testing.T) {
	t.Parallel()
	file := []string{"a", "f {", "\tif {", "\t}", "}", "", "b {", "}"}
	for edit, want := range map[string]string{
		"-f {\n-...\n-}\n-":        "a|b {|}",
		" a\n-...\n b {\n+new":     "a|b {|new|}",
		"-f {\n-...\n-\t}\n+\tnew": "a|\tnew|}||b {|}",
	} {
		got, err := apply(file, strings.Split(edit, "\n"))
		if err != nil || strings.Join(got, "|") != want {
			t.Errorf("%q: %q, %v; want %q", edit, strings.Join(got, "|"), err, want)
		}
	}
	for edit, says := range map[string]string{
		"-f {\n-...": "no line of the file ends", "-f {\n-...\n+x": "no line of the file ends",
		"-f {\n-...\n-c": `no line "c"`, "-g\n-...\n-}": "0 times", "-}\n-...\n-}": "3 times",
	} {
		if _, err := apply(file, strings.Split(edit, "\n")); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want one that says %q", edit, err, says)
		}
	}
}

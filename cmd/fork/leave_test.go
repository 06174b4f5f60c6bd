package main

import (
	"strings"
	"testing"
)

func TestCut(t *testing.T) {
	t.Parallel()
	mark := func(comment, text, end string) string {
		return comment + "fork: leave out" + end + "\n" + text + comment + "fork: go on" + end + "\n"
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"lines of a script":  {"x.sh", "a\n" + mark("  # ", "b\n", "") + "c\n", "a\nc\n"},
		"lines of Go":        {"x.go", "a\n" + mark("\t// ", "b\n", "") + "c\n", "a\nc\n"},
		"two pieces":         {"x.sh", mark("# ", "b\n", "") + "c\n" + mark("# ", "d\n", ""), "c\n"},
		"a paragraph":        {"x.md", "a\n" + mark("<!-- ", "b\n", " -->") + "c\n", "a\nc\n"},
		"part of a line":     {"x.md", "a<!-- fork: leave out --> b<!-- fork: go on -->, c", "a, c"},
		"a line of its own":  {"x.md", "a\n<!-- fork: leave out -->b<!-- fork: go on -->\n\nc\n", "a\n\nc\n"},
		"a part first":       {"x.md", "<!-- fork: leave out -->b<!-- fork: go on --> c\n", " c\n"},
		"between paragraphs": {"x.md", "a\n\n" + mark("<!-- ", "b\n", " -->") + "\nc\n", "a\n\nc\n"},
		"paragraphs of code": {"x.sh", "a\n\n" + mark("# ", "b\n", "") + "\nc\n", "a\n\nc\n"},
		"the end":            {"x.md", "a\n\n" + mark("<!-- ", "b\n", " -->"), "a\n"},
		"another comment":    {"x.sh", "# fork: leave out of it\n", "# fork: leave out of it\n"},
	} {
		got, err := cut(c.file, []byte(c.text))
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
	for _, text := range []string{"# fork: leave out\na\n", "a\n# fork: go on\n", "# fork: leave out, for nothing.txt\na\n# fork: go on\n"} {
		if _, err := cut("x.sh", []byte(text)); err == nil || !strings.Contains(err.Error(), "x.sh") && !strings.Contains(err.Error(), "nothing.txt") {
			t.Errorf("%q: %v, want an error that names the file", text, err)
		}
	}
	got, err := cut("Makefile", []byte("a\n# fork: leave out, for tf-check.mk\nb\n# fork: go on\nc\n"))
	if err != nil || !strings.HasPrefix(string(got), "a\ntf-check: ##") || !strings.HasSuffix(string(got), "c\n") {
		t.Errorf("a part: %q, %v", got, err)
	}
}

func TestUnlink(t *testing.T) {
	t.Parallel()
	text := "see [figures](performance.md#inbox) and [design](design.md)\n| [`lab`](../lab/README.md) | bench |\n| [`x`](../x) | [y](../lab/y.go) |\n"
	want := "see figures and [design](design.md)\n| [`x`](../x) | y |\n"
	if got := string(unlink("docs/a.md", []byte(text))); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

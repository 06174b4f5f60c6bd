package main

import (
	"encoding/json"
	"go/format"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"example.com/lockstep/cmd/fork/repo"
)

// shapes are aggregates of all kinds: with a parent and every type, and without a parent and
// with one field.
var shapes = [][3]string{
	{"sonnet", "text:string,stars:int32,size:int64,pinned:bool,due_at:timestamp", "video"},
	{"limerick", "line_count:int64", ""},
	{"elegy", "visible:bool,link_url:string", ""},
}

func planned(t *testing.T, root string, words [3]string) *change {
	t.Helper()
	a, err := parse(words[0], words[1], words[2])
	if err != nil {
		t.Fatal(err)
	}
	c, err := plan(root, a)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A file that was there keeps all its text, in its order. New text is as gofmt has it, JSON is
// JSON, and nothing says that a program wrote it.
func TestInsertionsKeepTheText(t *testing.T) {
	t.Parallel()
	for _, words := range shapes {
		c := planned(t, "../..", words)
		for name, text := range c.files {
			if !slices.Contains(c.created, name) {
				before, err := os.ReadFile(filepath.Join(c.root, name))
				if err != nil {
					t.Fatal(err)
				}
				if name != "docs/security.md" && !contains(text, string(before)) {
					t.Errorf("%s lost text", name)
				}
			}
			formatted, err := format.Source([]byte(text))
			if strings.HasSuffix(name, ".go") && (err != nil || string(formatted) != text) {
				t.Errorf("%s is not as gofmt has it: %v", name, err)
			}
			if strings.HasSuffix(name, ".json") && !json.Valid([]byte(text)) {
				t.Errorf("%s is no JSON", name)
			}
			if strings.Contains(text, "{{") && slices.Contains(c.created, name) && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s has a part of a template", name)
			}
		}
	}
}

// contains reports whether all of part is in text, in its order, but for spaces.
func contains(text, part string) bool {
	rest := []rune(text)
	for _, r := range part {
		if unicode.IsSpace(r) || r == ',' || r == '(' || r == ')' {
			continue
		}
		i := slices.Index(rest, r)
		if i < 0 {
			return false
		}
		rest = rest[i+1:]
	}
	return true
}

// inGo returns the change of one Go file, which gets text at the end of the block.
func inGo(t *testing.T, file, opening, text string) (string, error) {
	t.Helper()
	c := &change{root: t.TempDir(), files: map[string]string{"p.go": file}}
	c.inside("p.go", opening, text)
	return c.files["p.go"], c.err
}

// A file without the place of an insertion, or with two of them, is named, and so is the place.
func TestMissingPlacesAreNamed(t *testing.T) {
	t.Parallel()
	for opening, file := range map[string]string{
		"var list = []int{": "package p\n\nvar list = []string{\n\t1,\n}\n",
		"[]string{":         "package p\n\nvar one = []string{\n}\n\nvar two = []string{\n}\n",
		"(":                 "package p\n\nconst (\n\ta = 1\n\t)\n", // not as gofmt has it
	} {
		if _, err := inGo(t, file, opening, "x"); err == nil || !strings.HasPrefix(err.Error(), "p.go has ") {
			t.Errorf("%s: %v", opening, err)
		}
	}
	if _, err := inGo(t, "package p\n\nvar list = []int{\n}\n", "[]int{", "1"); err == nil || !strings.HasPrefix(err.Error(), "p.go: ") {
		t.Errorf("an insertion that is no Go: %v", err)
	}
}

func TestInsertions(t *testing.T) {
	t.Parallel()
	const text = "package p\n\nimport (\n\t\"fmt\"\n)\n\nconst (\n\ta = 1\n)\n\ntype s struct {\n\tx int\n}\n\n" +
		"var many = map[string][]int{\n\t\"a\": {\n\t\t1,\n\t},\n}\n\nfunc f(all []int) {\n\tfor range all {\n\t\tg(1)\n\t}\n\tg(2)\n}\n"
	for opening, c := range map[string]struct{ text, want string }{
		"import (":                     {`"errors"`, "import (\n\t\"errors\"\n\t\"fmt\"\n)\n"},
		"const (":                      {"bb = 2", "const (\n\ta  = 1\n\tbb = 2\n)\n"},
		"type s struct {":              {"yy int", "\tx  int\n\tyy int\n}\n"},
		"var many = map[string][]int{": {`"b": {2},`, "\t},\n\t\"b\": {2},\n}\n"},
		`"a": {`:                       {"3,\n", "\t\t1,\n\t\t3,\n\t},\n"},
		"for range all {":              {"g(3)", "\t\tg(1)\n\t\tg(3)\n\t}\n\tg(2)\n"},
	} {
		if got, err := inGo(t, text, opening, c.text); err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v, no %q in\n%s", opening, err, c.want, got)
		}
	}
}

// tools returns whether the tools of `make generate` are built.
func tools(t *testing.T) {
	t.Helper()
	for _, name := range []string{"buf", "protoc-gen-go", "protoc-gen-go-grpc"} {
		if _, err := os.Stat(filepath.Join("../../build/bin", name)); err != nil {
			t.Skip("the tools of `make generate` are not built")
		}
	}
}

// The code of an aggregate compiles, with its tests. Nothing is written. The first shape has all types of
// fields, and TestAggregatesInACopy compiles more of them.
func TestAggregateCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles both services")
	}
	tools(t)
	few := shapes[:1]
	if os.Getenv("LOCKSTEP_FULL") != "" {
		few = shapes
	}
	for _, words := range few {
		c := planned(t, "../..", words)
		if err := c.complete(t.Context(), io.Discard); err != nil {
			t.Errorf("%v: %v", words, err)
		}
		for _, name := range c.created {
			if _, err := os.Lstat(filepath.Join(c.root, name)); err == nil {
				t.Errorf("%s was written", name)
			}
		}
	}
	taken := planned(t, "../..", [3]string{"reply", goodFields})
	if err := taken.complete(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "reply already declared") {
		t.Errorf("the tests of video have a type of the name, and the error is %v", err)
	}
}

// No line is longer than the linter's limit, whatever the names of the aggregate and of its
// parent are. There is no parent with such a name, so the test leaves out the check of the names.
func TestLongNamesMakeNoLongLines(t *testing.T) {
	t.Parallel()
	linter, err := os.ReadFile("../../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	length := regexp.MustCompile(`line-length: (\d+)`).FindSubmatch(linter) // a fork in longer words has another limit
	if length == nil {
		t.Fatal("the linter has no limit")
	}
	most, _ := strconv.Atoi(string(length[1]))
	for _, parent := range []string{"", strings.Repeat("p", maxName)} {
		a, err := parse(strings.Repeat("n", maxName), "body:string,due_at:timestamp,level:int32", parent)
		if err != nil {
			t.Fatal(err)
		}
		c := &change{aggregate: a, root: "../..", files: map[string]string{}}
		c.module, c.err = repo.Module(c.root)
		c.newFiles()
		c.ownerEdits()
		c.readerEdits()
		c.topicEdits()
		if c.err != nil {
			t.Fatal(c.err)
		}
		for file, text := range c.files {
			if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				continue
			}
			for i, line := range strings.Split(text, "\n") {
				if len(line) > most {
					t.Errorf("PARENT=%s: %s:%d: %d: %s", parent, file, i+1, len(line), line)
				}
			}
		}
	}
}

// The linter refuses a switch with one case.
func TestOneFieldHasNoSwitch(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]int{"body:string": 0, "due:timestamp": 0, goodFields: 2} {
		c := planned(t, "../..", [3]string{"stanza", fields})
		if text := c.text("services/video/stanza/fields.go"); strings.Count(text, "switch name {") != want || strings.Contains(text, "\n\n\t\tif name") {
			t.Errorf("%s: want %d switches in\n%s", fields, want, text)
		}
	}
}

// In full: the command adds an aggregate, one below it and one without a parent to a copy of
// the repository, and the tests of all three pass there.
func TestAggregatesInACopy(t *testing.T) {
	if os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("takes minutes: LOCKSTEP_FULL=1")
	}
	tools(t)
	root := filepath.Join(t.TempDir(), "copy")
	git(t, "../..", "clone", "--quiet", "--no-hardlinks", ".", root)
	bin, err := filepath.Abs("../../build/bin")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, "build"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(bin, filepath.Join(root, "build/bin")); err != nil {
		t.Fatal(err)
	}
	all := [][3]string{shapes[0], {"stanza", "body:string", "sonnet"}, shapes[1]}
	for _, words := range all {
		command := []string{"make", "aggregate", "NAME=" + words[0], "FIELDS=" + words[1], "PARENT=" + words[2]}
		if out, err := inCopy(t, root, command...); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
		git(t, root, "add", "-A")
		git(t, root, "commit", "--quiet", "-m", words[0])
		if out, err := inCopy(t, root, command...); err == nil || !strings.Contains(out, "there is an aggregate") {
			t.Errorf("%v a second time: %v\n%s", command, err, out)
		}
	}
	for _, command := range [][]string{
		{"go", "test", "-timeout", "10m", ".", "./migrations", "./cmd/schema", "./internal/topics", "./internal/local/broker",
			"./services/video/...", "./services/catalog/..."},
		{"go", "test", "-timeout", "10m", "-run", "Sonnet|Stanza|Limerick", "./services"},
		{"make", "lint"},
	} {
		if out, err := inCopy(t, root, command...); err != nil {
			t.Errorf("%v: %v\n%s", command, err, out)
		}
	}
}

func inCopy(t *testing.T, root string, command ...string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = root
	said, err := cmd.CombinedOutput()
	return string(said), err
}

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"example.com/lockstep/cmd/fork/repo"
)

const goodFields = "text:string,stars:int32"

func TestBadWordsAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, fields, parent, want string }{
		{"", goodFields, "", "NAME: "},
		{"Sonnet", goodFields, "", "NAME: "},
		{"two words", goodFields, "", "NAME: "},
		{"two_words", goodFields, "", "NAME: "},
		{"1st", goodFields, "", "NAME: "},
		{strings.Repeat("x", maxName+1), goodFields, "", "NAME: "},
		{"type", goodFields, "", "reserved word"},
		{"go", goodFields, "", "reserved word"},
		{"string", goodFields, "", "reserved word"},
		{"len", goodFields, "", "reserved word"},
		{"order", goodFields, "", "reserved word"},
		{"message", goodFields, "", "reserved word"},
		{"outbox", goodFields, "", "reserved word"},
		{"googol", goodFields, "", "begins with goog"},
		{"sonnet", "", "", "FIELDS: "},
		{"sonnet", "text", "", "not NAME:TYPE"},
		{"sonnet", "text:varchar", "", `unknown type "varchar"`},
		{"sonnet", "Text:string", "", "FIELDS: "},
		{"sonnet", "a__b:string", "", "FIELDS: "},
		{"sonnet", "text:string,,", "", "FIELDS: "},
		{"sonnet", "text:string,text:int32", "", "there twice"},
		{"sonnet", "a_b:string,ab:int32", "", "there twice"},
		{"sonnet", "createdat:timestamp", "", "every sonnet has"},
		{"sonnet", "userid:string", "", "every sonnet has"},
		{"sonnet", "reached:bool", "", "every sonnet has"},
		{"sonnet", "xmin:int64", "", "every sonnet has"},
		{"sonnet", "a:string,b:string,c:string,d:string", "", ""},
		{"sonnet", "a:string,b:string,c:string,d:string,e:string", "", "at most 4"},
		{"sonnet", "select:string", "", "reserved word"},
		{"sonnet", "func:string", "", "reserved word"},
		{"sonnet", "version:int64", "", "every sonnet has"},
		{"sonnet", "sonnet_id:string", "", "every sonnet has"},
		{"sonnet", "video_id:string", "video", "every sonnet has"},
		{"sonnet", "a:bool,b:bool,c:bool,d:bool,e:bool,f:bool,g:bool,h:bool,i:bool", "", "at most 8"},
		{"sonnet", goodFields, "sonnet", "PARENT: "},
		{"sonnet", goodFields, "A parent", "PARENT: "},
		{"sonnet", goodFields, "video", ""},
	} {
		_, err := parse(test.name, test.fields, test.parent)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("NAME=%q FIELDS=%q PARENT=%q: %v, want %q", test.name, test.fields, test.parent, err, test.want)
		}
	}
}

// A name or a parent that does not fit the repository is refused, with the place that has it.
func TestTakenNamesAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, parent, want string }{
		{"engagement", "", "there is an aggregate"},
		{"video", "", "there is an aggregate"},
		{"search", "", "taken: services/catalog/search"},
		{"unexpected", "", "a reserved word"},
		{"sonnet", "engagement", "PARENT: "},
		{"sonnet", "nothing", "PARENT: "},
	} {
		a, err := parse(test.name, goodFields, test.parent)
		if err == nil {
			_, err = plan("../..", a)
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("NAME=%s PARENT=%s: %v, want %q", test.name, test.parent, err, test.want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, t.TempDir(), &help, io.Discard); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "PARENT") {
		t.Errorf("help: %v\n%s", err, help.String())
	}
	// A tree with changes, and one without a repository.
	root := t.TempDir()
	args := []string{"--name", "sonnet", "--fields", goodFields}
	if err := run(t.Context(), args, root, io.Discard, io.Discard); err == nil {
		t.Error("outside of a repository: no error")
	}
	git(t, root, "init", "--quiet")
	if err := os.WriteFile(filepath.Join(root, "a file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), args, root, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "not committed") {
		t.Errorf("with changes: %v", err)
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	args = append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=" + os.DevNull}, args...)
	if _, err := repo.Git(t.Context(), dir, args...); err != nil {
		t.Fatal(err)
	}
}

func TestFieldNames(t *testing.T) {
	t.Parallel()
	f := Field{Name: "link_url", Kind: "string"}
	if f.Go() != "LinkURL" || f.Proto() != "LinkUrl" || f.JSON() != "linkUrl" {
		t.Errorf("%s, %s, %s", f.Go(), f.Proto(), f.JSON())
	}
}

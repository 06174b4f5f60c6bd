package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// leftOut has the paths that a fork does not have, each with the reason. A path may be the
// beginning of the paths of several files.
var leftOut = map[string]string{
	"lab/":                        "benchmarks, and Terraform applied to a stand-in for Google Cloud",
	"localpubsub/conformance/":    "the suite that compares localpubsub with other implementations",
	"localpubsub/cmd/conformance": "prints the suite's table",
	"localpubsub/CONFORMANCE.md":  "the suite's table",
	"cmd/dev/live":                "the live page of the pair on a laptop, a demonstration of the promises",
	"cmd/dev/scenario/":           "its buttons, which attack the pair",
	"internal/live/":              "the page itself",
	"services/catalog/live":       "the same page of one process",
	"docs/library.md":             "the library in a service that is no fork",
	"docs/live.":                  "its document and picture",
	"docs/performance":            "figures of the benchmarks",
	"docs/releasing.md":           "steps to a version of this repository's modules",
	".ci/tag":                     "their tags",
	"release_test.go":             "the test of that script",
	"cmd/fork/plain_test.go":      "the words that a fork of this repository can have",
	"proto/released.yaml":         "a fork has released nothing; made from its own proto/",
	"deploy/schemas/released/":    "likewise",
	repo.Record:                   "how this repository was made of another one",
}

// parts are the files that replace files of this repository in a fork. The words in parts are
// replaced like the words in other files.
//
//go:embed parts
var parts embed.FS

// instead maps the path of a file to the part that replaces the file.
var instead = map[string]string{"CHANGELOG.md": "CHANGELOG.md"}

// added maps the path of a file that only a fork has to the part that is its content.
var added = map[string]string{"deploy/terraform/check.sh": "check.sh"} // Terraform's checks without lab

// unambiguous has further replacements, like instead. They apply to a fork in which the aggregate
// and its owner have different names.
var unambiguous = map[string]string{"cmd/fork/contexts.go": "contexts.go.txt"}

func part(name string) ([]byte, error) { return parts.ReadFile("parts/" + name) }

func isLeftOut(name string) bool {
	if strings.HasSuffix(name, ".pb.go") {
		return true // generated from the fork's own proto/
	}
	for prefix := range leftOut {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

const (
	cutFrom = `fork: leave out(?:, for (\S+))?`
	cutTo   = `fork: go on`
)

// These patterns match the marks around a piece that a fork does not have. A mark is a line that
// has only a comment. In a document a mark can also be a part of a line. A mark may name the part
// that replaces the piece.
var (
	lines  = regexp.MustCompile(`(?ms)^[ \t]*(?://|#) ` + cutFrom + `$.*?[ \t]*(?://|#) ` + cutTo + `\n`)
	line   = regexp.MustCompile(`(?m)^[ \t]*(?://|#) (?:` + cutFrom + `|` + cutTo + `)$`)
	block  = regexp.MustCompile(`(?ms)^<!-- ` + cutFrom + ` -->\n.*?<!-- ` + cutTo + ` -->\n`)
	inline = regexp.MustCompile(`(?s)<!-- ` + cutFrom + ` -->.*?<!-- ` + cutTo + ` -->`)
	single = regexp.MustCompile(`<!-- (?:` + cutFrom + `|` + cutTo + `) -->`)
)

// cut returns the content of a file without the marked pieces that a fork does not have.
func cut(name string, content []byte) ([]byte, error) {
	marks, left := []*regexp.Regexp{lines}, line
	if path.Ext(name) == ".md" {
		marks, left = []*regexp.Regexp{block, inline}, single
	}
	var missing error
	for _, mark := range marks {
		content = mark.ReplaceAllFunc(content, func(piece []byte) []byte {
			named := mark.FindSubmatch(piece)[1]
			if len(named) == 0 {
				return append([]byte(seam), piece[len(bytes.TrimRight(piece, "\n")):]...)
			}
			instead, err := part(string(named))
			missing = errors.Join(missing, err)
			return instead
		})
	}
	if mark := left.Find(content); mark != nil {
		return nil, fmt.Errorf("%s: a mark of fork has no other end: %s", name, bytes.TrimSpace(mark))
	}
	return joined(content), missing
}

// seam stands for a piece that was cut.
const seam = "\x00cut\x00"

var (
	between = regexp.MustCompile(`(\A|\n\n)(?:` + seam + `\n+)+`)
	atEnd   = regexp.MustCompile(`\n\n` + seam + `\n\z`)
	alone   = regexp.MustCompile(`(?m)^` + seam + `\n`)
)

// joined removes the seams from a text. Where a line was cut, no empty line remains. Where a
// paragraph was cut, one empty line remains instead of two.
func joined(content []byte) []byte {
	content = atEnd.ReplaceAll(content, []byte("\n"))
	content = between.ReplaceAll(content, []byte("$1"))
	content = alone.ReplaceAll(content, nil)
	return bytes.ReplaceAll(content, []byte(seam), nil)
}

var (
	link = regexp.MustCompile(`\[([^\]\n]*)\]\(([^)#:\n]+)(#[^)\n]*)?\)`)
	row  = regexp.MustCompile(`(?m)^\| \[[^\]\n]*\]\(([^)#:\n]+)[^)\n]*\).*\n`)
)

// unlink changes a document that links to files that a fork does not have. If the first cell of a
// row in a table is such a link, unlink removes the row. It replaces any other such link by the
// text of the link.
func unlink(name string, content []byte) []byte {
	gone := func(target []byte) bool {
		file := path.Join(path.Dir(name), string(target))
		return isLeftOut(file) || isLeftOut(file+"/")
	}
	content = row.ReplaceAllFunc(content, func(found []byte) []byte {
		if gone(row.FindSubmatch(found)[1]) {
			return nil
		}
		return found
	})
	return link.ReplaceAllFunc(content, func(found []byte) []byte {
		m := link.FindSubmatch(found)
		if gone(m[2]) {
			return m[1]
		}
		return found
	})
}

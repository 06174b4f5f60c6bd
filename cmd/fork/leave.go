package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// leftOut are the paths, or beginnings of paths, that a fork does not have, with the reason.
var leftOut = map[string]string{
	"lab/":                        "benchmarks, and Terraform applied to a stand-in for Google Cloud",
	"localpubsub/conformance/":    "the suite that compares localpubsub with other implementations",
	"localpubsub/cmd/conformance": "prints the suite's table",
	"localpubsub/CONFORMANCE.md":  "the suite's table",
	"cmd/dev/live":                "the live page of the pair on a laptop, a demonstration of the promises",
	"cmd/dev/scenario/":           "its buttons, which attack the pair",
	"internal/live/":              "the page itself",
	"services/catalog/live":       "the same page of one process",
	"docs/live.":                  "its document and picture",
	"docs/performance.md":         "figures of the benchmarks",
	"docs/releasing.md":           "steps to a version of this repository's modules",
	".ci/tag":                     "their tags",
	"release_test.go":             "the test of that script",
	"cmd/fork/plain_test.go":      "the words that a fork of this repository can have",
	"proto/released.yaml":         "a fork has released nothing; made from its own proto/",
	"deploy/schemas/released/":    "likewise",
}

// parts are the files that a fork has instead of files of this repository. Their words are
// replaced like the words of other files.
//
//go:embed parts
var parts embed.FS

// instead names the part that takes the place of a file.
var instead = map[string]string{"CHANGELOG.md": "CHANGELOG.md"}

// added are the files that a fork has in addition, by their parts.
var added = []struct{ name, part string }{
	{"deploy/terraform/check.sh", "check.sh"}, // Terraform's checks without lab
}

// unambiguous is like instead, but for a fork in which each word has one meaning.
var unambiguous = map[string]string{"cmd/fork/contexts.go": "contexts.go.txt"}

func isAdded(name string) bool {
	for _, extra := range added {
		if extra.name == name {
			return true // this repository is a fork, and its forks get the file anew
		}
	}
	return false
}

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

// Marks of the pieces that a fork does not have. A mark is a line that has only a comment. In
// documents it can also be a part of a line. A mark may name the part that takes the place of
// the piece.
var (
	lines  = regexp.MustCompile(`(?ms)^[ \t]*(?://|#) ` + cutFrom + `$.*?[ \t]*(?://|#) ` + cutTo + `\n`)
	line   = regexp.MustCompile(`(?m)^[ \t]*(?://|#) (?:` + cutFrom + `|` + cutTo + `)$`)
	block  = regexp.MustCompile(`(?ms)^<!-- ` + cutFrom + ` -->\n.*?<!-- ` + cutTo + ` -->\n`)
	inline = regexp.MustCompile(`(?s)<!-- ` + cutFrom + ` -->.*?<!-- ` + cutTo + ` -->`)
	single = regexp.MustCompile(`<!-- (?:` + cutFrom + `|` + cutTo + `) -->`)
)

// cut returns the content of a file without the pieces that a fork does without.
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

// joined closes the seams of a text. A line that was cut leaves no empty line. A paragraph that
// was cut leaves one empty line, not two.
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

// unlink returns a document without its rows of tables about files that a fork does not have. It
// replaces each link to such a file by the text of the link.
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

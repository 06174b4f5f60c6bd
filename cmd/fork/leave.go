package main

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// leftOut are the paths, or their beginnings, that a fork does without, and the reason.
var leftOut = map[string]string{
	"lab/":                        "benchmarks, and Terraform applied to a stand-in for Google Cloud",
	"localpubsub/conformance/":    "the suite that compares localpubsub with other implementations",
	"localpubsub/cmd/conformance": "prints the suite's table",
	"localpubsub/CONFORMANCE.md":  "the suite's table",
	"docs/performance.md":         "figures of the benchmarks",
	"proto/released.yaml":         "a fork has released nothing; made from its own proto/",
	"deploy/schemas/released/":    "likewise",
}

// parts are the files that a fork has instead of this repository's, before their words
// are replaced.
//
//go:embed parts
var parts embed.FS

// instead has the part that takes the place of a file.
var instead = map[string]string{
	"README.md":    "README.md",
	"CHANGELOG.md": "CHANGELOG.md",
}

// unambiguous are the same for a fork in which each word has one meaning.
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

var (
	// cutFrom begins a piece of a file that a fork does without; a name is that of the part
	// in its place.
	cutFrom = regexp.MustCompile(`^\s*(?://|#|<!--) fork: leave out(?:, for (\S+))?(?: -->)?\n?$`)
	cutTo   = regexp.MustCompile(`^\s*(?://|#|<!--) fork: go on(?: -->)?\n?$`)
)

// cut returns the content of a file without the pieces that a fork does without.
func cut(name string, content []byte) ([]byte, error) {
	var kept bytes.Buffer
	cutting := false
	for line := range bytes.Lines(content) {
		from := cutFrom.FindSubmatch(line)
		switch {
		case from != nil && cutting, cutTo.Match(line) && !cutting:
			return nil, fmt.Errorf("%s: a mark of fork has no other end: %s", name, bytes.TrimSpace(line))
		case from != nil:
			cutting = true
			if len(from[1]) == 0 {
				continue
			}
			piece, err := part(string(from[1]))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			kept.Write(piece)
		case cutTo.Match(line):
			cutting = false
		case !cutting:
			kept.Write(line)
		}
	}
	if cutting {
		return nil, fmt.Errorf("%s: fork finds no end of the piece that it leaves out", name)
	}
	return kept.Bytes(), nil
}

var link = regexp.MustCompile(`\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)`)

// unlink returns a document with the text in place of each link to a file that a fork
// does without.
func unlink(name string, content []byte) []byte {
	return link.ReplaceAllFunc(content, func(found []byte) []byte {
		m := link.FindSubmatch(found)
		if target := path.Join(path.Dir(name), string(m[2])); isLeftOut(target) || isLeftOut(target+"/") {
			return m[1]
		}
		return found
	})
}

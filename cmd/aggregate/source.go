package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// source is a Go file into which text is inserted. The places are found by their syntax. All other
// text stays as it is, except for gofmt. err names the first place that was not found.
type source struct {
	name  string
	text  string
	set   *token.FileSet
	file  *ast.File
	edits []edit
	err   error
}

// edit inserts text at an offset.
type edit struct {
	at   int
	text string
}

func newSource(name, text string) *source {
	s := &source{name: name, text: text, set: token.NewFileSet()}
	s.file, s.err = parser.ParseFile(s.set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return s
}

// result returns the text after all insertions, formatted as by gofmt.
func (s *source) result() (string, error) {
	if s.err != nil {
		return "", s.err
	}
	formatted, err := format.Source([]byte(apply(s.text, s.edits)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.name, err)
	}
	return string(formatted), nil
}

// apply makes the insertions of edits. Several insertions at one place keep their order.
func apply(text string, edits []edit) string {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.at, b.at) })
	var out strings.Builder
	last := 0
	for _, e := range edits {
		out.WriteString(text[last:e.at] + e.text)
		last = e.at
	}
	return out.String() + text[last:]
}

func (s *source) missing(what string) {
	if s.err == nil {
		s.err = fmt.Errorf("%s: there is no %s, where the new lines would go: add the aggregate by hand, as docs/adapt.md has it", s.name, what)
	}
}

func (s *source) insert(at token.Pos, text string) {
	s.edits = append(s.edits, edit{s.offset(at), text})
}

func (s *source) offset(at token.Pos) int { return s.set.Position(at).Offset }

func (s *source) line(at token.Pos) int { return s.set.Position(at).Line }

// of returns the text of a node. It returns "" for the declaration that was not found.
func (s *source) of(n ast.Node) string {
	if n == nil {
		return ""
	}
	return s.text[s.offset(n.Pos()):s.offset(n.End())]
}

// imports adds an import to the last group of imports. gofmt sorts the import into this group.
func (s *source) imports(text string) {
	if s.err != nil || strings.Contains(s.text, text) {
		return
	}
	if len(s.file.Imports) == 0 {
		s.missing("import")
		return
	}
	s.insert(s.file.Imports[len(s.file.Imports)-1].End(), "\n\t"+text)
}

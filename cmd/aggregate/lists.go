package main

import (
	"go/ast"
	"go/token"
	"strings"
)

// This file inserts text into literals and declarations.

// maxLine is the maximum length of a line with a literal. If an insertion would make the line
// longer, the literal is broken into several lines.
const maxLine = 138

// element appends text to the first literal in a declaration that has the type opening, or stands
// directly after the code opening, such as "Shared:" or "return".
func (s *source) element(declaration, opening, text string) {
	lit := find(s, declaration, opening+"{…}", func(n *ast.CompositeLit) bool {
		return n.Type != nil && s.of(n.Type) == opening || strings.HasSuffix(strings.TrimRight(s.text[:s.offset(n.Pos())], " "), opening)
	})
	if s.err != nil {
		return
	}
	text = strings.TrimRight(text, "\n")
	if len(lit.Elts) == 0 {
		s.insert(lit.Rbrace, text)
		return
	}
	last := lit.Elts[len(lit.Elts)-1].End()
	switch {
	case s.line(last) < s.line(lit.Rbrace): // the list ends with a comma and a new line
		s.insert(lit.Rbrace, text+",\n")
	case s.tooLong(lit.Lbrace, text):
		s.insert(lit.Lbrace+1, "\n")
		s.insert(lit.Rbrace, ",\n"+text+",\n")
	default:
		s.insert(last, ", "+text)
	}
}

// tooLong reports whether the line at a position would be too long if more were added to it. A line
// is also too long if more contains a line break.
func (s *source) tooLong(at token.Pos, more string) bool {
	start := strings.LastIndex(s.text[:s.offset(at)], "\n") + 1
	length, _, _ := strings.Cut(s.text[start:], "\n")
	return len(length)+len(more) > maxLine || strings.Contains(more, "\n")
}

// member appends a field to a struct.
func (s *source) member(declaration, text string) {
	st := find(s, declaration, "struct", func(*ast.StructType) bool { return true })
	if s.err != nil {
		return
	}
	s.insert(st.Fields.Closing, text+"\n")
}

// constant adds a constant to the group of constants that contains the declaration. If the
// declaration is in no group, constant adds the new constant after the declaration.
func (s *source) constant(declaration, text string) {
	spec := s.declaration(declaration)
	if spec == nil {
		return
	}
	for _, d := range s.file.Decls {
		if group, ok := d.(*ast.GenDecl); ok && group.Lparen.IsValid() && group.Pos() <= spec.Pos() && spec.End() <= group.End() {
			s.insert(group.Rparen, text+"\n")
			return
		}
	}
	s.insert(spec.End(), "\nconst "+text+"\n")
}

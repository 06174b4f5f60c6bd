package main

import (
	"go/ast"
	"go/token"
	"strings"
)

// This file inserts text into literals, arguments and declarations.

// maxLine is the maximum length of a line with a literal. If an insertion would make the line
// longer, the literal is broken into several lines.
const maxLine = 138

// element appends text to the first literal of a type in a declaration.
func (s *source) element(declaration, typ, text string) {
	lit := find(s, declaration, typ+"{…}", func(n *ast.CompositeLit) bool { return n.Type != nil && s.of(n.Type) == typ })
	if s.err == nil {
		s.list(lit.Lbrace, lit.Rbrace, lit.Elts, text)
	}
}

// keyed appends text to the literal that is the value of a key in a declaration.
func (s *source) keyed(declaration, key, text string) {
	pair := find(s, declaration, key+": …{…}", func(n *ast.KeyValueExpr) bool {
		_, literal := n.Value.(*ast.CompositeLit)
		return literal && s.of(n.Key) == key
	})
	if s.err == nil {
		lit := pair.Value.(*ast.CompositeLit)
		s.list(lit.Lbrace, lit.Rbrace, lit.Elts, text)
	}
}

// holding appends text to the first literal in a declaration that contains code and has no type of
// its own.
func (s *source) holding(declaration, code, text string) {
	lit := find(s, declaration, "{…} with "+code, func(n *ast.CompositeLit) bool { return n.Type == nil && strings.Contains(s.of(n), code) })
	if s.err == nil {
		s.list(lit.Lbrace, lit.Rbrace, lit.Elts, text)
	}
}

// returned appends text to the literal that a function in a declaration returns as its only result.
func (s *source) returned(declaration, text string) {
	found := find(s, declaration, "func literal that returns a literal", func(n *ast.ReturnStmt) bool {
		if len(n.Results) != 1 {
			return false
		}
		_, literal := n.Results[0].(*ast.CompositeLit)
		return literal
	})
	if s.err == nil {
		lit := found.Results[0].(*ast.CompositeLit)
		s.list(lit.Lbrace, lit.Rbrace, lit.Elts, text)
	}
}

// argument appends text to the arguments of the last call of function in a declaration.
func (s *source) argument(declaration, function, text string) {
	root := s.declaration(declaration)
	if root == nil {
		return
	}
	var last *ast.CallExpr
	ast.Inspect(root, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && s.of(call.Fun) == function && len(call.Args) > 0 {
			last = call
		}
		return true
	})
	if last == nil {
		s.missing(function + "(…) in " + declaration)
		return
	}
	end := last.Args[len(last.Args)-1]
	separator := ", "
	if s.tooLong(end.Pos(), text) {
		separator = ",\n"
	}
	s.insert(end.End(), separator+text)
}

// list appends text to a list in braces. open and end are the positions of the braces.
func (s *source) list(open, end token.Pos, elements []ast.Expr, text string) {
	text = strings.TrimRight(text, "\n")
	switch {
	case len(elements) == 0:
		s.insert(end, text)
	case s.line(elements[len(elements)-1].End()) < s.line(end): // the list ends with a comma and a new line
		after := strings.Index(s.text[s.offset(elements[len(elements)-1].End()):], "\n")
		s.edits = append(s.edits, edit{s.offset(elements[len(elements)-1].End()) + after, "\n" + text + ","})
	case s.tooLong(open, text):
		s.insert(open+1, "\n")
		s.insert(end, ",\n"+text+",\n")
	default:
		s.insert(elements[len(elements)-1].End(), ", "+text)
	}
}

// tooLong reports whether the line at a position would be too long if more were added to it. A line
// is also too long if more contains a line break.
func (s *source) tooLong(at token.Pos, more string) bool {
	start := strings.LastIndex(s.text[:s.offset(at)], "\n") + 1
	length, _, _ := strings.Cut(s.text[start:], "\n")
	return len(length)+len(more) > maxLine || strings.Contains(more, "\n")
}

// sorted inserts text, a quoted string, at its place in the sorted list of strings in a
// declaration.
func (s *source) sorted(declaration, text string) {
	lit := find(s, declaration, "[]string{…}", func(n *ast.CompositeLit) bool { return n.Type != nil && s.of(n.Type) == "[]string" })
	if s.err != nil {
		return
	}
	for _, e := range lit.Elts {
		if s.of(e) > text {
			s.insert(e.Pos(), text+", ")
			if s.tooLong(lit.Lbrace, text) {
				s.insert(lit.Lbrace+1, "\n")
				s.insert(lit.Rbrace, ",\n")
			}
			return
		}
	}
	s.list(lit.Lbrace, lit.Rbrace, lit.Elts, text)
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

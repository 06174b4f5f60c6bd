package main

import (
	"go/ast"
	"strings"
)

// This file inserts statements into functions.

// first inserts statements at the beginning of the body of a function.
func (s *source) first(function, text string) {
	if d, ok := s.declaration(function).(*ast.FuncDecl); ok {
		s.insert(d.Body.Lbrace+1, "\n"+strings.TrimRight(text, "\n"))
	}
}

// before finds the first statement of a function that contains code, and inserts statements before
// it. after inserts statements after that statement.
func (s *source) before(function, code, text string) {
	if at := s.statement(function, code); at != nil {
		s.insert(at.Pos(), strings.TrimRight(text, "\n")+"\n")
	}
}

func (s *source) after(function, code, text string) {
	if at := s.statement(function, code); at != nil {
		s.insert(at.End(), "\n"+strings.TrimRight(text, "\n"))
	}
}

// inLoop inserts statements at the end of the body of the loop in a function that ranges over the
// expression over.
func (s *source) inLoop(function, over, text string) {
	loop := find(s, function, "loop over "+over, func(n *ast.RangeStmt) bool { return s.of(n.X) == over })
	if s.err == nil {
		s.insert(loop.Body.Rbrace, text)
	}
}

package main

import (
	"go/ast"
	"slices"
)

// This file finds the places in a Go file where text is inserted.

// declaration returns the function, method, type, variable or constant of the given name.
func (s *source) declaration(name string) ast.Node {
	if s.err != nil {
		return nil
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if function(d) == name || d.Recv == nil && d.Name.Name == name {
				return d
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if named(spec, name) {
					return spec
				}
			}
		}
	}
	s.missing(name)
	return nil
}

// function returns the name of a function. For a method it returns Type.Method.
func function(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	receiver := d.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if name, ok := receiver.(*ast.Ident); ok {
		return name.Name + "." + d.Name.Name
	}
	return ""
}

func named(spec ast.Spec, name string) bool {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return spec.Name.Name == name
	case *ast.ValueSpec:
		return slices.ContainsFunc(spec.Names, func(n *ast.Ident) bool { return n.Name == name })
	}
	return false
}

// find returns the first node of type N inside a declaration for which the function fits returns
// true. what describes the node in an error.
func find[N ast.Node](s *source, declaration, what string, fits func(N) bool) (found N) {
	root := s.declaration(declaration)
	if root == nil {
		return found
	}
	ok := false
	ast.Inspect(root, func(n ast.Node) bool {
		if node, is := n.(N); is && !ok && fits(node) {
			found, ok = node, true
		}
		return !ok
	})
	if !ok {
		s.missing(what + " in " + declaration)
	}
	return found
}

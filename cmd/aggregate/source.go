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

// maxLine is the length from which a literal on one line is broken into several.
const maxLine = 138

// source is a file of Go into which text is inserted. Places are found by their syntax, and
// all other text stays as it is. The first place that is not there is err.
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

// result is the text after all insertions, as gofmt has it.
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

// apply makes insertions; of several at one place the first comes first.
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

func (s *source) of(n ast.Node) string { return s.text[s.offset(n.Pos()):s.offset(n.End())] }

// declaration is the function, method, type, variable or constant of that name.
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

// function is the name of a function, with the type of its receiver before it.
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

// find returns the first node of type N in the declaration that fits.
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

// holding appends text to the literal, without a type of its own, that has some code in a declaration.
func (s *source) holding(declaration, code, text string) {
	lit := find(s, declaration, "{…} with "+code, func(n *ast.CompositeLit) bool { return n.Type == nil && strings.Contains(s.of(n), code) })
	if s.err == nil {
		s.list(lit.Lbrace, lit.Rbrace, lit.Elts, text)
	}
}

// returned appends text to the literal that the function literal of a declaration returns.
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

// argument appends text to the arguments of the last call of a function in a declaration.
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

// count is the number of literals of a type in a declaration.
func (s *source) count(declaration, typ string) (n int) {
	if root := s.declaration(declaration); root != nil {
		ast.Inspect(root, func(node ast.Node) bool {
			if lit, ok := node.(*ast.CompositeLit); ok && lit.Type != nil && s.of(lit.Type) == typ {
				n++
			}
			return true
		})
	}
	return n
}

// list appends text to a list in braces.
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

// tooLong reports whether the line at a position gets too long by more text.
func (s *source) tooLong(at token.Pos, more string) bool {
	start := strings.LastIndex(s.text[:s.offset(at)], "\n") + 1
	length, _, _ := strings.Cut(s.text[start:], "\n")
	return len(length)+len(more) > maxLine || strings.Contains(more, "\n")
}

// sorted inserts a quoted string into the sorted list of strings in a declaration.
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

// constant appends to a group of constants, or adds one behind the declaration.
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

// first inserts statements at the beginning of the body of a function.
func (s *source) first(function, text string) {
	if d, ok := s.declaration(function).(*ast.FuncDecl); ok {
		s.insert(d.Body.Lbrace+1, "\n"+strings.TrimRight(text, "\n"))
	}
}

// last inserts statements at the end of the body of a function without results.
func (s *source) last(function, text string) {
	if d, ok := s.declaration(function).(*ast.FuncDecl); ok {
		s.insert(d.Body.Rbrace, strings.TrimRight(text, "\n")+"\n")
	}
}

// before inserts statements before the first statement of a function that contains some code,
// and after inserts them behind it.
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

func (s *source) statement(function, code string) ast.Stmt {
	if d, ok := s.declaration(function).(*ast.FuncDecl); ok {
		for _, statement := range d.Body.List {
			if strings.Contains(s.of(statement), code) {
				return statement
			}
		}
		s.missing(code + " in " + function)
	}
	return nil
}

// inLoop inserts statements at the beginning, or at the end, of the loop over a range in a function.
func (s *source) inLoop(function, over string, begin bool, text string) {
	loop := find(s, function, "loop over "+over, func(n *ast.RangeStmt) bool { return s.of(n.X) == over })
	switch {
	case s.err != nil:
	case begin:
		s.insert(loop.Body.Lbrace+1, "\n"+strings.TrimRight(text, "\n"))
	default:
		s.insert(loop.Body.Rbrace, text)
	}
}

// inLiteral inserts statements at the beginning of the function literal in a function.
func (s *source) inLiteral(function, text string) {
	lit := find(s, function, "func literal", func(*ast.FuncLit) bool { return true })
	if s.err == nil {
		s.insert(lit.Body.Lbrace+1, "\n"+strings.TrimRight(text, "\n"))
	}
}

// imports adds an import to the last group of imports; gofmt sorts it.
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

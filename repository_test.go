package lockstep_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A file is one Go file of the repository, with the facts that the rules use.
type file struct {
	name      string   // slash-separated, from the root
	imports   []string // of this module, relative to it
	sql       []string // string literals that are statements
	test      bool
	generated bool
	doc       bool // has the package comment
	// variables are the exported variables of the package, without embedded files.
	variables []string
}

func (f file) dir() string { return path.Dir(f.name) }

// statement recognises SQL by its first words; the house writes keywords in
// upper case. DELETE alone is an HTTP method.
var statement = regexp.MustCompile(`^\s*(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH|TRUNCATE|LISTEN|NOTIFY)\s`)

// repository reads all Go files itself instead of asking `go list`: it sees every
// platform's files, and go test, which caches results, knows the files that were read.
func repository(t *testing.T) []file {
	t.Helper()
	module := modulePath(t)
	var files []file
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || name == "build"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		f, err := parse(filepath.ToSlash(name), module)
		files = append(files, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// nested are the other modules of the repository, which a fork may leave out.
var nested = []string{"localpubsub", "lab"}

// missing reports whether module is a nested one that is not here.
func missing(module string) bool {
	_, err := os.Stat(path.Join(module, "go.mod"))
	return slices.Contains(nested, module) && errors.Is(err, fs.ErrNotExist)
}

// present returns the nested modules that are here.
func present() []string { return slices.DeleteFunc(slices.Clone(nested), missing) }

func modulePath(t *testing.T) string {
	t.Helper()
	gomod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(gomod), "\n")
	return strings.TrimPrefix(first, "module ")
}

func parse(name, module string) (file, error) {
	source, err := os.ReadFile(name)
	if err != nil {
		return file{}, err
	}
	tree, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments)
	if err != nil {
		return file{}, err
	}
	f := file{
		name:      name,
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(tree),
		doc:       tree.Doc != nil,
	}
	ast.Inspect(tree, func(node ast.Node) bool {
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		value, _ := strconv.Unquote(literal.Value)
		if statement.MatchString(value) {
			f.sql = append(f.sql, strings.TrimSpace(value))
		}
		return true
	})
	f.variables = exportedVariables(tree)
	for _, spec := range tree.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if relative, ours := strings.CutPrefix(imported, module+"/"); ours {
			f.imports = append(f.imports, relative)
		}
	}
	return f, nil
}

func exportedVariables(tree *ast.File) (names []string) {
	for _, d := range tree.Decls {
		declared, ok := d.(*ast.GenDecl)
		if !ok || declared.Tok != token.VAR {
			continue
		}
		for _, spec := range declared.Specs {
			value, ok := spec.(*ast.ValueSpec)
			if !ok || isEmbedded(value) {
				continue
			}
			for _, name := range value.Names {
				if name.IsExported() {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// isEmbedded reports whether a variable has embedded files, which only a variable can have.
func isEmbedded(value *ast.ValueSpec) bool {
	return value.Doc != nil && slices.ContainsFunc(value.Doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

var requirement = regexp.MustCompile(`(?m)^\t(\S+) (v\S+)( // indirect)?$`)

// TestModulesAgree compares the go.mod of all modules: with one version of a dependency in
// each, a module is tested with the code that the others run.
func TestModulesAgree(t *testing.T) {
	t.Parallel()
	type place struct{ version, file string }
	first := map[string]place{}
	modules := append(present(), ".")
	// fork: leave out
	modules = append(modules, "lab/guide/testdata/shop")
	// fork: go on
	for _, module := range modules {
		name := path.Join(module, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		required, _, _ := strings.Cut(string(text), "\nexclude ")
		for _, m := range requirement.FindAllStringSubmatch(required, -1) {
			module, version := m[1], m[2]
			if other, known := first[module]; known && other.version != version {
				t.Errorf("%s requires %s %s, and %s %s: run `go get %[2]s@VERSION && go mod tidy` in both folders",
					name, module, version, other.file, other.version)
			}
			first[module] = place{version, name}
		}
	}
}

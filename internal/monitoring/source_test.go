package monitoring

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// root of the repository.
const root = "../.."

// kinds are the methods of instrument.Meter that make an instrument.
var kinds = map[string]Kind{
	"Counter": Counter, "Sum": Counter, "Level": Gauge, "Set": Gauge, "Gauge": Gauge, "Age": Gauge, "Sizes": Histogram, "Durations": Histogram,
}

// TestInstrumentsAreDeclared compares all instruments in the code with the table.
func TestInstrumentsAreDeclared(t *testing.T) {
	t.Parallel()
	got, want := map[string]string{}, map[string]string{}
	for _, m := range Metrics {
		if m.Maker == "" {
			want[m.Name] = fmt.Sprintf("%s, %s, %s", m.Kind, m.Unit, m.Meaning)
		}
	}
	for _, dir := range []string{"pkg", "internal", "services", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			tree, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(tree, func(node ast.Node) bool {
				if m, ok := instrumentOf(node); ok {
					got[m.Name] = fmt.Sprintf("%s, %s, %s", m.Kind, m.Unit, m.Meaning)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the code's instruments (-declared +made):\n%s", diff)
	}
}

// instrumentOf returns the metric that node makes.
func instrumentOf(node ast.Node) (m Metric, ok bool) {
	call, ok := node.(*ast.CallExpr)
	if !ok || len(call.Args) < 2 {
		return m, false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || kinds[method.Sel.Name] == "" {
		return m, false
	}
	m = Metric{Name: text(call.Args[0]), Kind: kinds[method.Sel.Name], Unit: "s", Meaning: text(call.Args[len(call.Args)-1])}
	if len(call.Args) == 3 {
		m.Unit = text(call.Args[1])
	}
	// Other methods have such a name, too. The name of a metric has a dot, and it has a
	// meaning.
	return m, strings.Contains(m.Name, ".") && m.Name[0] != '.' && strings.Contains(m.Meaning, " ")
}

// text is a string expression's value. The only variable in a name is the prefix of a
// checkpoint's metrics.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, _ := strconv.Unquote(e.Value) // another literal is no text
		return s
	case *ast.BinaryExpr:
		return text(e.X) + text(e.Y)
	case *ast.SelectorExpr:
		if e.Sel.Name == "Metrics" {
			return "catalog.engagement.offset"
		}
	}
	return ""
}

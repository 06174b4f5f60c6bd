package lockstep_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/lockstep/internal/topics"
)

// namesTopics match the files that may name a topic, with the reason.
var namesTopics = map[string]*regexp.Regexp{
	"the list":                            regexp.MustCompile(`^internal/topics/`),
	"written from the list":               regexp.MustCompile(`^deploy/terraform/(topics|alerts)\.json$|^deploy/observability/rules\.yaml$`),
	"names of the library's own tests":    regexp.MustCompile(`^pkg/eventing/.*_test\.go$`),
	"metrics as a service has shown them": regexp.MustCompile(`^internal/(live/consumer|monitoring/cases)_test\.go$`),
	"words of a fork":                     regexp.MustCompile(`^cmd/fork/contexts_test\.go$`),
	"this test":                           regexp.MustCompile(`^topics_test\.go$`),
}

// configured are the files besides Go's that could name a topic.
var configured = []string{".tf", ".hcl", ".tpl", ".sh", ".yml", ".yaml", ".json", ".sql"}

// commentLine is a line that has only a comment.
var commentLine = regexp.MustCompile(`(?m)^\s*(//|--|#).*$`)

// TestOneListOfTopics finds topics that code or configuration names outside of the list.
func TestOneListOfTopics(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == ".git" || name == "build" || entry.Name() == "testdata" || entry.Name() == ".terraform"):
			return filepath.SkipDir
		case entry.IsDir() || mayNameTopics(filepath.ToSlash(name)):
			return nil
		}
		found, err := topicsIn(name)
		for _, text := range found {
			t.Errorf("%s names a topic in %.80q: take it from internal/topics", name, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func mayNameTopics(name string) bool {
	for _, files := range namesTopics {
		if files.MatchString(name) {
			return true
		}
	}
	return false
}

// topicsIn returns the literals of a Go file, or the lines of another, that name a topic.
func topicsIn(name string) (found []string, err error) {
	extension := filepath.Ext(name)
	if extension != ".go" && !slices.Contains(configured, extension) {
		return nil, nil
	}
	source, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if extension == ".go" {
		return topicsInGo(source)
	}
	for line := range strings.Lines(commentLine.ReplaceAllString(string(source), "")) {
		if namesTopic(line) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found, nil
}

func topicsInGo(source []byte) (found []string, err error) {
	tree, err := parser.ParseFile(token.NewFileSet(), "", source, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(tree, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if value, err := strconv.Unquote(literal.Value); err == nil && namesTopic(value) {
				found = append(found, value)
			}
		}
		return true
	})
	return found, nil
}

// topicName matches a topic's name as a word. A package of events, such as video.events.v1, begins
// like a topic.
var topicName = func() *regexp.Regexp {
	var names []string
	for _, name := range topics.Names() {
		names = append(names, regexp.QuoteMeta(name))
	}
	return regexp.MustCompile(fmt.Sprintf(`(^|[^\w.-])(%s)($|[^\w.]|\.(%s|dlq)|\.$|\.\s)`, strings.Join(names, "|"), topics.Catalog))
}()

func namesTopic(text string) bool { return topicName.MatchString(text) }

func TestTopicsAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`"video.events"`: true, "projects/p/topics/video.events": true, "video.events.": true,
		"engagement.events.catalog.dlq": true,
		"video.events.v1.Event":         false, "/video.events.v1.X/Y": false, "video.eventsource": false, "my.video.events": false, "events": false,
	} {
		if got := namesTopic(text); got != want {
			t.Errorf("%q names a topic: %t", text, got)
		}
	}
}

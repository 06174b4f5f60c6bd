package lockstep_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/lockstep/internal/monitoring"
)

// generatedDocs follow from the code, and name no metric.
var generatedDocs = []string{filepath.Join("docs", "grpc.md"), filepath.Join("docs", "events.md"), filepath.Join("docs", "tables.md")}

var (
	docLink   = regexp.MustCompile(`\]\(([^)#:]+)(?:#([^)]*))?\)`)
	docTarget = regexp.MustCompile("`make ([a-z0-9-]+)")
	target    = regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `)
	heading   = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInSlug = regexp.MustCompile(`[^a-z0-9 _-]`)
	// docComment is a comment that begins a line and does not end it.
	docComment = regexp.MustCompile(`(?m)^<!-- .*? -->.`)
	docTest    = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")
	docMetric  = regexp.MustCompile("`((?:outbox|inbox|consistency|reconcile|replica|auth_keys|requests|grpc|database|idempotency|catalog_engagement|http_server|rpc|db_client|pubsub_googleapis)_[a-z_:]+)")
	testFunc   = regexp.MustCompile(`func (Test[A-Z][A-Za-z0-9]*)\(`)
)

// TestDocsAreTrue compares the names in the documents with the tree: files and their
// headings, tests, metrics and make's targets.
func TestDocsAreTrue(t *testing.T) {
	t.Parallel()
	var docs []string
	for _, dir := range append(present(), ".", "docs", "deploy", "deploy/*", "clients/*") {
		pattern := filepath.Join(dir, "*.md")
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		docs = append(docs, found...)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	tests, metrics, targets := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range monitoring.Metrics {
		for _, name := range append(m.Series(), m.Prometheus()) {
			metrics[name] = true
		}
		for _, l := range m.Labels {
			metrics[l.Name] = true // http_route is a label, and its name begins as a metric's
		}
	}
	for _, m := range target.FindAllSubmatch(makefile, -1) {
		targets[string(m[1])] = true
	}
	for _, f := range repository(t) {
		source, err := os.ReadFile(f.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
	}
	for _, name := range docs {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range docComment.FindAll(text, -1) {
			t.Errorf("%s: %s begins a line, so what stands behind it is shown as it is, and not as Markdown", name, m)
		}
		for _, m := range docLink.FindAllSubmatch(text, -1) {
			if err := linked(filepath.Join(filepath.Dir(name), string(m[1])), string(m[2])); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
		for _, m := range docTarget.FindAllSubmatch(text, -1) {
			if !targets[string(m[1])] {
				t.Errorf("%s names make %s, which is no target that `make help` lists", name, m[1])
			}
		}
		for _, m := range docTest.FindAllSubmatch(text, -1) {
			if !tests[string(m[1])] {
				t.Errorf("%s names %s, which is no test", name, m[1])
			}
		}
		for _, m := range docMetric.FindAllSubmatch(text, -1) {
			if !metrics[string(m[1])] && !slices.Contains(generatedDocs, name) {
				t.Errorf("%s names %s, which is no metric", name, m[1])
			}
		}
	}
}

// linked returns why a link leads nowhere: the file is not there, or has no heading
// with that anchor.
func linked(name, anchor string) error {
	if anchor == "" {
		_, err := os.Stat(name)
		return err
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		if strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-") == anchor {
			return nil
		}
	}
	if strings.Contains(string(text), `<a id="`+anchor+`">`) {
		return nil
	}
	return fmt.Errorf("no heading #%s", anchor)
}

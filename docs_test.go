package lockstep_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	docLink   = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	docTest   = regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]*)`")
	docMetric = regexp.MustCompile("`((?:outbox|inbox|consistency)_[a-z_]+)")
	testFunc  = regexp.MustCompile(`func (Test[A-Z][A-Za-z0-9]*)\(`)
	metric    = regexp.MustCompile(`"((?:outbox|inbox|consistency)\.[a-z_.]+)"`)
)

// TestDocsAreTrue holds what the documents name against the tree: files, tests and
// metrics.
func TestDocsAreTrue(t *testing.T) {
	t.Parallel()
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	tests, metrics := map[string]bool{}, map[string]bool{}
	for _, f := range repository(t) {
		source, err := os.ReadFile(f.name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
		for _, m := range metric.FindAllSubmatch(source, -1) {
			metrics[strings.ReplaceAll(string(m[1]), ".", "_")] = true
		}
	}
	for _, name := range append(docs, "README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range docLink.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), string(m[1]))); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
		for _, m := range docTest.FindAllSubmatch(text, -1) {
			if !tests[string(m[1])] {
				t.Errorf("%s names %s, which is no test", name, m[1])
			}
		}
		for _, m := range docMetric.FindAllSubmatch(text, -1) {
			// Prometheus names end with the unit, and counters with _total.
			bare := strings.TrimSuffix(strings.TrimSuffix(string(m[1]), "_total"), "_seconds")
			if !metrics[bare] {
				t.Errorf("%s names %s, which is no metric", name, m[1])
			}
		}
	}
}

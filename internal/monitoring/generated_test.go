package monitoring

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated files")

// TestGenerated compares the files that follow from the tables; with -update it writes them.
func TestGenerated(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"deploy/observability/rules.yaml": rules(), "deploy/terraform/alerts.json": alertsJSON(),
		"deploy/terraform/boards.json": indented(googleBoards()),
	}
	for _, b := range Boards {
		if !b.Google {
			want[grafanaDir+b.ID+".json"] = indented(grafanaBoard(b))
		}
	}
	const doc = "docs/observability.md"
	text := read(t, doc)
	var err error
	for name, table := range map[string]string{"metrics": metricsTable(), "alerts": alertsTable(), "boards": boardsTable()} {
		if text, err = between(text, name, table); err != nil {
			t.Fatal(doc, err)
		}
	}
	want[doc] = text
	for name, want := range want {
		if *update {
			if err := os.WriteFile(filepath.Join(root, name), []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(read(t, name), "\n")); diff != "" {
			t.Errorf("%s does not follow from the tables; `make generate` writes it (-want +is):\n%s", name, diff)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// between puts a table between its two comments in a document.
func between(text, name, table string) (string, error) {
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end of "+name+" -->\n"
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("has no place for the table of %s", name)
	}
	return before + begin + "\n" + table + "\n" + end + after, nil
}

func metricsTable() string {
	var b strings.Builder
	b.WriteString("| on `/metrics` | in OpenTelemetry | kind, unit | service | labels | meaning |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, m := range Metrics {
		name, kind, service, meaning := "`"+m.Name+"`", string(m.Kind), m.Service, strings.TrimSuffix(m.Meaning, ".")
		if strings.ContainsAny(m.Name, "_:") && m.Maker != "" {
			name = ""
		}
		if m.Unit != "" {
			kind += ", " + m.Unit
		}
		if m.Maker != "" {
			meaning += " (" + m.Maker + ")"
		}
		if m.Seldom != "" {
			meaning += "; it appears " + m.Seldom
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", m.Prometheus(), name, kind, service, labelsText(m.Labels), meaning)
	}
	return b.String()
}

func labelsText(labels []Label) string {
	var parts []string
	for _, l := range labels {
		bound := l.Bound
		if l.Values != nil {
			bound = strings.Join(l.Values, ", ")
		}
		parts = append(parts, "`"+l.Name+"`: "+bound)
	}
	return strings.Join(parts, "; ")
}

func alertsTable() string {
	var b strings.Builder
	b.WriteString("| alert | | means | runbook |\n| --- | --- | --- | --- |\n")
	for _, a := range Alerts {
		where := ""
		switch {
		case a.Google:
			where = " (Google Cloud's metrics)"
		case a.NamedInstances:
			where = " (not on Cloud Run)"
		case a.Instead != "":
			where = " (without the collector: Google Cloud's metrics)"
		}
		title, _, _ := strings.Cut(a.Entry, " (")
		fmt.Fprintf(&b, "| `%s` | %s | %s%s | [%s](runbook.md%s) |\n", a.Name, a.Severity, a.Summary, where, title, a.Anchor())
	}
	return b.String()
}

// rules returns the alerts on the services' own metrics as a rule file of Prometheus.
func rules() string {
	var b strings.Builder
	b.WriteString("# Generated from internal/monitoring by `make generate`. DO NOT EDIT.\n" +
		"# The alerts on the services' own metrics, for any Prometheus.\ngroups:\n  - name: lockstep\n    rules:\n")
	for _, a := range Alerts {
		if !a.Google {
			b.WriteString(a.rule())
		}
	}
	return b.String()
}

// rule returns the alert as an entry of a rule file. It quotes texts as Go does, which YAML
// accepts.
func (a Alert) rule() string {
	return fmt.Sprintf("      - alert: %s\n        expr: %s\n        for: %ds\n        labels: {severity: %s}\n"+
		"        annotations:\n          summary: %s\n          runbook: %s\n",
		a.Name, strconv.Quote(a.Expr), a.For, a.Severity, strconv.Quote(a.Summary), strconv.Quote("docs/runbook.md"+a.Anchor()))
}

// alertsJSON is the input of Terraform. It sorts by name, as Terraform does.
func alertsJSON() string {
	type alert struct {
		Expr     string   `json:"expr"`
		For      int      `json:"for"`
		Severity Severity `json:"severity"`
		Summary  string   `json:"summary"`
		Anchor   string   `json:"anchor"`
		Google   bool     `json:"google"`
		Instead  string   `json:"instead,omitempty"`
	}
	byName := map[string]alert{}
	for _, a := range Alerts {
		if a.NamedInstances {
			continue
		}
		byName[a.Name] = alert{a.Expr, a.For, a.Severity, a.Summary, a.Anchor(), a.Google, a.Instead}
	}
	return indented(byName)
}

func indented(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		panic(err) // the tables can be encoded
	}
	return b.String()
}

package monitoring

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ofTarget are the labels that the scraper adds to each series: its own configuration in
// deploy/observability, and Google's collector, have them under the same names. The namespace is of
// Google's alone.
var ofTarget = []string{"service_name", "namespace", "instance"}

// withoutPanel are the metrics that no board shows, with the reason.
var withoutPanel = map[string]string{
	"db_client_operation_errors_total": "statements fail by design, for a row that is locked or there already; outages have metrics of their own",
	"hook_dropped_calls_total":         "it is 0 unless a hook of a fork is slow; the log has a line",
	"outbox_topics_paused_age_seconds": "it exists only while a topic is paused, which outbox_topics_paused shows",
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// TestBoardsRestOnMetrics compares each query with the table of metrics: its names, its labels,
// and those of its legend. Each metric is on a board, or in withoutPanel.
func TestBoardsRestOnMetrics(t *testing.T) {
	t.Parallel()
	declared, shown := declaredSeries(), map[string]bool{}
	for _, b := range Boards {
		for _, row := range b.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					if complaint := unfounded(b, q, declared, shown); complaint != "" {
						t.Errorf("%s, %s: %s", b.Title, p.Title, complaint)
					}
				}
			}
		}
	}
	for _, m := range Metrics {
		name := m.Prometheus()
		if reason := withoutPanel[name]; shown[name] == (reason != "") {
			t.Errorf("%s: on a board: %t; reason to have none: %q", name, shown[name], reason)
		}
	}
}

// unfounded says what of a query is not declared. It adds the query's metrics to shown.
func unfounded(b Board, q Query, declared map[string]Metric, shown map[string]bool) string {
	names := Names(q.Expr)
	if len(names) == 0 {
		return "on no metric"
	}
	known := append([]string{"le", "monitored_resource"}, ofTarget...)
	for _, name := range names {
		m, ok := declared[name]
		if !ok || (m.Maker == "Google Cloud") != b.Google {
			return name + " is not declared for it"
		}
		shown[m.Prometheus()] = true
		for _, l := range m.Labels {
			known = append(known, l.Name)
		}
	}
	grouped := strings.Join(flat(groupings, q.Expr), ", ")
	for _, label := range append(flat(matched, strings.Join(matchers.FindAllString(q.Expr, -1), " ")), strings.Split(grouped, ", ")...) {
		if label != "" && !slices.Contains(known, label) {
			return "the label " + label + " is not declared for " + strings.Join(names, ", ")
		}
	}
	for _, label := range flat(legendLabel, q.Legend) {
		if !slices.Contains(strings.Split(grouped, ", "), label) {
			return "the legend has {{" + label + "}}, which is no label of the lines"
		}
	}
	return ""
}

// flat are the first groups of all matches.
func flat(pattern *regexp.Regexp, text string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// TestBoardsParse lets Prometheus read each query.
func TestBoardsParse(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing: it is in Debian's package prometheus")
	}
	rules, n := "groups:\n  - name: panels\n    rules:\n", 0
	for _, b := range Boards {
		for _, row := range b.Rows {
			for _, p := range row.Panels {
				for _, q := range p.Queries {
					n++
					rules += fmt.Sprintf("      - {record: 'panel:%d', expr: %s}\n", n, strconv.Quote(q.Expr))
				}
			}
		}
	}
	out, err := exec.Command(promtool, "check", "rules", write(t, t.TempDir(), "panels.yaml", rules)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("SUCCESS: %d rules found", n)) {
		t.Errorf("%d queries: %v\n%s", n, err, out)
	}
}

// TestBoardsAreComplete: a panel has a place, a meaning of one sentence, and a unit that both
// programs know.
func TestBoardsAreComplete(t *testing.T) {
	t.Parallel()
	unit := regexp.MustCompile(`^(s|ms|By|1|\{[a-z]+\}(/s)?)$`)
	for _, b := range Boards {
		titles := map[string]bool{}
		for _, row := range b.Rows {
			if len(row.Panels) == 0 {
				t.Errorf("%s, %s: no panels", b.Title, row.Title)
			}
			for _, p := range row.Panels {
				switch {
				case titles[p.Title]:
					t.Errorf("%s has two panels %q", b.Title, p.Title)
				case !strings.HasSuffix(p.Means, ".") || strings.Contains(p.Means, ". "):
					t.Errorf("%s, %s: %q is not one sentence", b.Title, p.Title, p.Means)
				case !unit.MatchString(p.Unit):
					t.Errorf("%s, %s: no such unit: %q", b.Title, p.Title, p.Unit)
				case p.Latest != row.Panels[0].Latest:
					t.Errorf("%s, %s: numbers have rows of their own", b.Title, row.Title)
				case p.Latest && len(p.Queries) != 1:
					t.Errorf("%s, %s: a number has one query", b.Title, p.Title)
				}
				titles[p.Title] = true
			}
		}
	}
}

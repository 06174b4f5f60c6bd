package monitoring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestAlertsFire lets Prometheus evaluate each alert over the series of cases. Without
// promtool it is skipped; CI has it.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing: it is in Debian's package prometheus")
	}
	for _, a := range expressions() {
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			tests, fires, quiet, every := "", 0, 0, "30s"
			for _, c := range cases[a.Name] {
				tests += c.yaml(a)
				if c.at > 2*time.Hour {
					every = "5m" // a day of windows of a day, each half minute, takes a minute
				}
				if c.quiet {
					quiet++
				} else {
					fires++
				}
			}
			if fires == 0 || quiet == 0 {
				t.Fatalf("it has %d cases in which it fires, and %d in which it does not", fires, quiet)
			}
			dir := t.TempDir()
			write(t, dir, "rules.yaml", "groups:\n  - name: one\n    rules:\n"+a.rule())
			file := write(t, dir, "test.yaml", "rule_files: [rules.yaml]\nevaluation_interval: "+every+"\ntests:\n"+tests)
			if out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	for name := range cases {
		if !slices.ContainsFunc(expressions(), func(a Alert) bool { return a.Name == name }) {
			t.Errorf("%s is no alert", name)
		}
	}
}

// expressions are all alerts. An expression that stands in for another is an alert of its own, whose
// name ends with Instead.
func expressions() []Alert {
	all := slices.Clone(Alerts)
	for _, a := range Alerts {
		if a.Instead != "" {
			a.Name, a.Expr, a.Google = a.Name+"Instead", a.Instead, true
			all = append(all, a)
		}
	}
	return all
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A ruleCase is a time in which an alert fires or, if quiet, does not.
type ruleCase struct {
	quiet bool
	// series has the values of each series in promtool's notation, one a minute.
	series map[string]string
	// at is the time of the look.
	at time.Duration
	// labels are those of the alert, besides its severity.
	labels map[string]string
}

// yaml is a test of promtool. An alert that fires does not yet do so just before its For has
// passed.
func (c ruleCase) yaml(a Alert) string {
	var b strings.Builder
	b.WriteString("  - interval: 1m\n    input_series:\n")
	for name, values := range c.series {
		fmt.Fprintf(&b, "      - {series: %s, values: %s}\n", strconv.Quote(name), strconv.Quote(values))
	}
	if len(c.series) == 0 {
		b.WriteString("      - {series: up, values: 1x2000}\n")
	}
	fmt.Fprintf(&b, "    alert_rule_test:\n      - {eval_time: %s, alertname: %s, exp_alerts: [", c.at, a.Name)
	if !c.quiet {
		fmt.Fprintf(&b, "{exp_labels: {severity: %s", a.Severity)
		for name, value := range c.labels {
			fmt.Fprintf(&b, ", %s: %s", name, strconv.Quote(value))
		}
		fmt.Fprintf(&b, "}, exp_annotations: {summary: %s, runbook: %s}}", strconv.Quote(a.Summary), strconv.Quote("docs/runbook.md"+a.Anchor()))
	}
	b.WriteString("]}\n")
	if !c.quiet && a.For > 0 {
		fmt.Fprintf(&b, "      - {eval_time: %ds, alertname: %s, exp_alerts: []}\n", a.For-30, a.Name)
	}
	return b.String()
}

// TestAlertsRestOnMetrics finds the metrics in each alert's expression. Google's are only in
// the alerts that say so: elsewhere they do not exist.
func TestAlertsRestOnMetrics(t *testing.T) {
	t.Parallel()
	declared := declaredSeries()
	for _, a := range expressions() {
		names := Names(a.Expr)
		if len(names) == 0 {
			t.Errorf("%s is on no metric", a.Name)
		}
		for _, name := range names {
			if m, ok := declared[name]; !ok || (m.Maker == "Google Cloud") != a.Google {
				t.Errorf("%s is on %s, which is not declared for it", a.Name, name)
			}
		}
		for _, label := range matched.FindAllStringSubmatch(strings.Join(matchers.FindAllString(a.Expr, -1), " "), -1) {
			if !slices.ContainsFunc(Metrics, func(m Metric) bool { return m.has(label[1]) }) && label[1] != "le" && label[1] != "monitored_resource" {
				t.Errorf("%s is on the label %s, which no metric has", a.Name, label[1])
			}
		}
	}
}

// matched finds the labels in matchers.
var matched = regexp.MustCompile(`(\w+)[!=]=?~?"`)

// declaredSeries are the metrics of the table, by the names of their series.
func declaredSeries() map[string]Metric {
	declared := map[string]Metric{}
	for _, m := range Metrics {
		for _, name := range append(m.Series(), m.Prometheus()) {
			declared[name] = m
		}
	}
	return declared
}

func (m Metric) has(label string) bool {
	return slices.ContainsFunc(m.Labels, func(l Label) bool { return l.Name == label })
}

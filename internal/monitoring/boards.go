package monitoring

import (
	"regexp"
	"slices"
	"strings"
)

// A Board is a page of panels. Its panels are the same in Grafana and in Cloud Monitoring.
type Board struct {
	// ID is the name of the board's files, and its identity in Grafana.
	ID    string
	Title string
	// Google says that the panels show metrics of Google Cloud. Such a board is in Cloud
	// Monitoring only, and needs no collector there.
	Google bool
	Rows   []Row
}

// A Row is a group of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// A Panel shows the results of PromQL queries.
type Panel struct {
	Title string
	// Means is one sentence that tells an operator what a rise, or another change, means.
	Means string
	// Unit is the unit of the values. It is a UCUM unit as in a Metric, "1" for a share of 1, or
	// a unit followed by "/s".
	Unit string
	// Latest says that the panel shows the last value as a number instead of lines over time. A
	// value of 1 or more is a fault.
	Latest  bool
	Queries []Query
}

// A Query gives one or more lines of a panel.
type Query struct {
	// Legend names the lines, with {{label}} for the value of a label.
	Legend string
	Expr   string
}

// Boards are all boards. The first board gives an overview. Each query returns a value as soon as
// the services run and have had a request. So a panel for faults shows 0 while there are no faults.
var Boards = []Board{
	{ID: "overview", Title: "lockstep: Overview", Rows: overviewRows},
	{ID: "video", Title: "lockstep: Video", Rows: videoRows},
	{ID: "catalog", Title: "lockstep: Catalog", Rows: catalogRows},
	{ID: "process", Title: "lockstep: Process", Rows: processRows},
	{ID: "pubsub", Title: "lockstep: Pub/Sub", Google: true, Rows: pubsubRows},
}

// Alerts returns the alerts on the metrics that the panel shows, in the order of the variable
// [Alerts].
func (p Panel) Alerts() (on []Alert) {
	shown := map[string]bool{}
	for _, q := range p.Queries {
		for _, name := range Names(q.Expr) {
			shown[name] = true
		}
	}
	for _, a := range Alerts {
		if slices.ContainsFunc(Names(a.Expr+" "+a.Instead), func(name string) bool { return shown[name] }) {
			on = append(on, a)
		}
	}
	return on
}

// Description returns the panel's text: its meaning, and the alerts on the metrics that it
// shows.
func (p Panel) Description() string {
	on := p.Alerts()
	if len(on) == 0 {
		return p.Means
	}
	names := make([]string, len(on))
	for i, a := range on {
		names[i] = a.Name
	}
	return p.Means + " Alerts: " + strings.Join(names, ", ") + "."
}

func one(legend, expr string) []Query { return []Query{{Legend: legend, Expr: expr}} }

// perSecond returns the rate of a counter. by is a list of labels, or empty for the sum of all
// series.
func perSecond(counter, by string) string { return summed("rate("+counter+"[5m])", by) }

func summed(expr, by string) string {
	if by == "" {
		return "sum(" + expr + ")"
	}
	return "sum by (" + by + ") (" + expr + ")"
}

// quantiles returns the median and the 99th percentile of a histogram, for each value of the labels
// by, the first of which names the lines.
func quantiles(histogram, by string) []Query {
	legend, labels := "", "le"
	if by != "" {
		first, _, _ := strings.Cut(by, ", ")
		legend, labels = " {{"+first+"}}", "le, "+by
	}
	bucket := perSecond(histogram+"_bucket", labels)
	return []Query{
		{Legend: "p50" + legend, Expr: "histogram_quantile(0.5, " + bucket + ")"},
		{Legend: "p99" + legend, Expr: "histogram_quantile(0.99, " + bucket + ")"},
	}
}

// mean returns PromQL for the mean of a histogram of sizes. A quantile would mislead, because most
// sizes are 1, and a quantile within the bucket from 0 to 1 would show about one half.
func mean(histogram, by string) string {
	return perSecond(histogram+"_sum", by) + " / " + perSecond(histogram+"_count", by)
}

// orZero returns an expression that is 0 while expr has no series.
func orZero(expr string) string { return expr + " or on() vector(0)" }

var (
	matchers  = regexp.MustCompile(`\{[^}]*\}`)
	groupings = regexp.MustCompile(`\b(?:by|without|on|ignoring) ?\(([^)]*)\)`)
	words     = regexp.MustCompile(`[a-z][a-z0-9_:]*\b`)
)

// Names returns the names of the series in a PromQL expression of this package's tables. It
// takes every word with an underscore, because the names of all these metrics have one.
func Names(expr string) (names []string) {
	expr = groupings.ReplaceAllString(matchers.ReplaceAllString(expr, ""), "")
	for _, word := range words.FindAllString(expr, -1) {
		if strings.Contains(word, "_") && word != "histogram_quantile" {
			names = append(names, word)
		}
	}
	return names
}

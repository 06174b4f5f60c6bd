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
	// Google says that the panels are on metrics of Google Cloud: the board is in Cloud
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
	// Means is one sentence: what a rise, or another change, tells an operator.
	Means string
	// Unit is that of the values: a UCUM unit as of a Metric, "1" for a share of 1, or a
	// unit and "/s".
	Unit string
	// Latest shows the last value as a number instead of lines over time. At 1 or more it is
	// a fault.
	Latest  bool
	Queries []Query
}

// A Query gives one line or several of a panel.
type Query struct {
	// Legend names the lines, with {{label}} for the value of a label.
	Legend string
	Expr   string
}

// Boards are all boards, the one for a first look first. Each query returns a value as soon
// as the services run and had a request: a panel that shows faults shows 0 without them.
var Boards = []Board{
	{ID: "overview", Title: "lockstep: Overview", Rows: overviewRows},
	{ID: "video", Title: "lockstep: Video", Rows: videoRows},
	{ID: "catalog", Title: "lockstep: Catalog", Rows: catalogRows},
	{ID: "process", Title: "lockstep: Process", Rows: processRows},
	{ID: "pubsub", Title: "lockstep: Pub/Sub", Google: true, Rows: pubsubRows},
}

// Alerts are the alerts on a metric that the panel shows, in the order of [Alerts].
func (p Panel) Alerts() (on []Alert) {
	shown := map[string]bool{}
	for _, q := range p.Queries {
		for _, name := range Names(q.Expr) {
			shown[name] = true
		}
	}
	for _, a := range Alerts {
		if slices.ContainsFunc(Names(a.Expr), func(name string) bool { return shown[name] }) {
			on = append(on, a)
		}
	}
	return on
}

// Description is the panel's text: its meaning, and the alerts that rest on what it shows.
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

// perSecond is the rate of a counter; by is a list of labels, or empty for the sum of all.
func perSecond(counter, by string) string { return summed("rate("+counter+"[5m])", by) }

func summed(expr, by string) string {
	if by == "" {
		return "sum(" + expr + ")"
	}
	return "sum by (" + by + ") (" + expr + ")"
}

// quantiles are the median and the 99th percentile of a histogram, for each value of by.
func quantiles(histogram, by string) []Query {
	legend, labels := "", "le"
	if by != "" {
		legend, labels = " {{"+by+"}}", "le, "+by
	}
	bucket := perSecond(histogram+"_bucket", labels)
	return []Query{
		{Legend: "p50" + legend, Expr: "histogram_quantile(0.5, " + bucket + ")"},
		{Legend: "p99" + legend, Expr: "histogram_quantile(0.99, " + bucket + ")"},
	}
}

// mean is for sizes: most are 1, and a quantile within the bucket up to 1 would show a half.
func mean(histogram, by string) string {
	return perSecond(histogram+"_sum", by) + " / " + perSecond(histogram+"_count", by)
}

// orZero is 0 while the expression has no series.
func orZero(expr string) string { return expr + " or on() vector(0)" }

var (
	matchers  = regexp.MustCompile(`\{[^}]*\}`)
	groupings = regexp.MustCompile(`\b(?:by|without|on|ignoring) ?\(([^)]*)\)`)
	words     = regexp.MustCompile(`[a-z][a-z0-9_:]*\b`)
)

// Names are the names of the series in a PromQL expression of this package's tables, whose
// metrics all have an underscore.
func Names(expr string) (names []string) {
	expr = groupings.ReplaceAllString(matchers.ReplaceAllString(expr, ""), "")
	for _, word := range words.FindAllString(expr, -1) {
		if strings.Contains(word, "_") && word != "histogram_quantile" {
			names = append(names, word)
		}
	}
	return names
}

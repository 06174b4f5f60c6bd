// Package monitoring declares each metric, each alert and each board of the pair once, in
// [Metrics], [Alerts] and [Boards]. Its tests check that the instruments in the code, the documents
// and the runbook agree with these tables. With `make generate` the tests also write the files that
// are generated from these tables:
//
//   - the tables in docs/observability.md;
//   - deploy/observability/rules.yaml and grafana/boards, for any Prometheus and Grafana;
//   - deploy/terraform/alerts.json and boards.json, for Cloud Monitoring.
package monitoring

import "strings"

// A Kind says how a metric behaves.
type Kind string

// The kinds of metrics. A Counter only grows. A Gauge goes up and down.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// A Label is a label of a metric with the bound of its values.
type Label struct {
	Name string
	// Values are all values of the label. Values is nil if the code does not know them.
	Values []string
	// Bound says in words which values there are, if Values is nil.
	Bound string
}

// A Metric is a metric that alerts and documents may name.
type Metric struct {
	// Name is the metric's name in OpenTelemetry. If the metric has no such name, Name is the
	// name on /metrics.
	Name string
	Kind Kind
	// Unit is a UCUM unit: s, By, or an annotation such as {event}.
	Unit    string
	Meaning string
	Labels  []Label
	// Service is the service that exposes the metric: video, catalog or both.
	Service string
	// Maker is the project that makes the metric, or its name and buckets. Empty means this
	// repository.
	Maker string
	// Seldom says when the metric appears. It is empty if one write and one read make the metric
	// appear.
	Seldom string
}

// Prometheus returns the metric's name on /metrics.
func (m Metric) Prometheus() string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	switch m.Unit {
	case "s":
		name = suffixed(name, "_seconds")
	case "By":
		name = suffixed(name, "_bytes")
	}
	if m.Kind == Counter {
		name = suffixed(name, "_total")
	}
	return name
}

// Series are the names of the metric's series on /metrics.
func (m Metric) Series() []string {
	name := m.Prometheus()
	if m.Kind == Histogram {
		return []string{name + "_bucket", name + "_sum", name + "_count"}
	}
	return []string{name}
}

func suffixed(name, suffix string) string { return strings.TrimSuffix(name, suffix) + suffix }

// A Severity selects the receivers of an alert, and the time of the notification.
type Severity string

// A Page wakes a person. A Ticket waits for the next working day.
const (
	Page   Severity = "page"
	Ticket Severity = "ticket"
)

// An Alert is a rule of Prometheus.
type Alert struct {
	Name     string
	Severity Severity
	// Expr is the PromQL expression that holds while something is wrong.
	Expr string
	// For is how long Expr has to hold, in seconds.
	For int
	// Summary is one sentence for the receiver of the alert.
	Summary string
	// Entry is the heading of the runbook's entry.
	Entry string
	// Google says that Expr uses metrics of Google Cloud, which exist in Cloud Monitoring only.
	Google bool
	// Instead is an expression on metrics of Google Cloud. It stands in for Expr where nothing
	// collects the services' metrics. If Instead is empty, there is no such alert there.
	Instead string
	// NamedInstances says that Expr needs instances that keep their names when they start again.
	// Instances of Cloud Run get new names, so Cloud Monitoring has no policy for the alert.
	NamedInstances bool
}

// Anchor returns the anchor of the alert's entry in docs/runbook.md.
func (a Alert) Anchor() string {
	kept := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '_', r == '-', 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		}
		return -1
	}, strings.ToLower(a.Entry))
	return "#" + kept
}

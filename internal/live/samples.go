package live

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Samples are the metrics of a process at one time.
type Samples model.Vector

// OwnSamples returns the metrics of this process.
func OwnSamples() (Samples, error) {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, families...)
	return Samples(samples), err
}

// ParseSamples reads Prometheus's text format.
func ParseSamples(from io.Reader) (Samples, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(from)
	if err != nil {
		return nil, err
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
	return Samples(samples), err
}

// Sum adds up the series of that name that have all of the labels, such as `le="1"`.
func (m Samples) Sum(name string, labels ...string) (total float64) {
	for _, s := range m {
		if string(s.Metric[model.MetricNameLabel]) == name && hasAll(s.Metric.String(), labels) {
			total += float64(s.Value)
		}
	}
	return total
}

func hasAll(metric string, labels []string) bool {
	return !slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(metric, label) })
}

// buckets returns the counts of a histogram by upper bound. It adds up the series that have the
// same bound. The counts are cumulative.
func (m Samples) buckets(name string) map[float64]float64 {
	counts := map[float64]float64{}
	for _, s := range m {
		if string(s.Metric[model.MetricNameLabel]) != name+"_bucket" {
			continue
		}
		if bound, err := strconv.ParseFloat(string(s.Metric[model.BucketLabel]), 64); err == nil { // also for +Inf
			counts[bound] += float64(s.Value)
		}
	}
	return counts
}

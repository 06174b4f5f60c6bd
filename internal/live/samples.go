package live

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// Samples are the lines of one look at a process's /metrics.
type Samples []sample

type sample struct {
	name, labels string
	value        float64
}

// OwnSamples are those of this process.
func OwnSamples() (Samples, error) {
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return nil, fmt.Errorf("write metrics: %w", err)
		}
	}
	return ParseSamples(&text)
}

// ParseSamples reads Prometheus's text format; a line that it cannot read is left out.
func ParseSamples(from io.Reader) (m Samples, err error) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			continue
		}
		name, labels, _ := strings.Cut(line[:at], "{")
		m = append(m, sample{name, labels, value})
	}
	return m, lines.Err()
}

// Sum adds up the series of that name that have each of the labels, such as `le="1"`.
func (m Samples) Sum(name string, labels ...string) (total float64) {
	for _, s := range m {
		if s.name == name && s.has(labels) {
			total += s.value
		}
	}
	return total
}

func (s sample) has(labels []string) bool {
	for _, label := range labels {
		if !strings.Contains(s.labels, label) {
			return false
		}
	}
	return true
}

// buckets adds up a histogram's series by their upper bounds. The counts are cumulative.
func (m Samples) buckets(name string) map[float64]float64 {
	counts := map[float64]float64{}
	for _, s := range m {
		if s.name != name+"_bucket" {
			continue
		}
		_, rest, _ := strings.Cut(s.labels, `le="`)
		text, _, _ := strings.Cut(rest, `"`)
		if bound, err := strconv.ParseFloat(text, 64); err == nil { // +Inf is a number here
			counts[bound] += s.value
		}
	}
	return counts
}

package scenario

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// scrapeTime bounds one request for metrics: no process may be there to answer it.
	scrapeTime = 2 * time.Second
	// maxMetrics bounds the answer: a service has a tenth of this.
	maxMetrics = 4 << 20
)

// sample is one line of /metrics.
type sample struct {
	name, labels string
	value        float64
}

// metrics are the lines of one scrape.
type metrics []sample

func (p *Pair) scrape(ctx context.Context, service string) (metrics, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, service+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := p.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/metrics: %s", response.Status)
	}
	return parseMetrics(io.LimitReader(response.Body, maxMetrics))
}

// parseMetrics reads Prometheus's text format; a line that it cannot read is left out.
func parseMetrics(from io.Reader) (m metrics, err error) {
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

// sum adds up the series of that name that have each of the labels, such as `le="1"`.
func (m metrics) sum(name string, labels ...string) (total float64) {
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
func (m metrics) buckets(name string) map[float64]float64 {
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

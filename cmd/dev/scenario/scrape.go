package scenario

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"example.com/lockstep/internal/live"
)

const (
	// scrapeTime bounds one request for metrics: no process may be there to answer it.
	scrapeTime = 2 * time.Second
	// maxMetrics bounds the answer: a service has a tenth of this.
	maxMetrics = 4 << 20
)

// scrape asks a service for its metrics.
func (p *Pair) scrape(ctx context.Context, service string) (live.Samples, error) {
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
	return live.ParseSamples(io.LimitReader(response.Body, maxMetrics))
}

package throughput

import (
	"context"
	"fmt"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/outbox/backlog"
	"example.com/lockstep/lab/bench/rig/postgres"
	"example.com/lockstep/lab/bench/rig/relay"
)

// spread measures the rate for several latencies of the broker, numbers of
// aggregates (which is the number of requests) and numbers of relays.
func spread(p *postgres.Server) (all []measure.Series) {
	for _, latency := range []time.Duration{0, relay.Latency, 20 * time.Millisecond} {
		s := measure.Series{Title: fmt.Sprintf("outbox: a backlog leaves, a publish takes %s more than the wire", latency), Runs: 1}
		for _, aggregates := range []int{1, 100, 10_000} {
			for _, relays := range []int{1, 4} {
				s.Measurements = append(s.Measurements, cell(p, latency, aggregates, relays))
			}
		}
		all = append(all, s)
	}
	return all
}

// cell is one cell of the table of latencies, aggregates and relays.
func cell(p *postgres.Server, latency time.Duration, aggregates, relays int) measure.Measurement {
	name := fmt.Sprintf("%dms_%d_aggregates_%d_relays", latency.Milliseconds(), aggregates, relays)
	return side(name, "", func(ctx context.Context, v volume) (float64, error) {
		b := backlog.Backlog{Aggregates: min(aggregates, v.spread), Versions: max(1, v.spread/aggregates)}
		return leave(ctx, p, b, latency, relays)
	})
}

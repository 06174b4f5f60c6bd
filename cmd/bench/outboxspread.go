package main

import (
	"context"
	"fmt"
	"time"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/rig/postgres"
	"example.com/lockstep/cmd/bench/rig/relay"
)

// outboxSpread is how the rate depends on the broker's latency, on the number of
// aggregates, which is that of requests, and on the number of relays.
func outboxSpread(p *postgres.Server) (all []measure.Series) {
	for _, latency := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		s := measure.Series{Title: fmt.Sprintf("outbox: a backlog leaves, a publish takes %s more than the wire", latency), Runs: 1}
		for _, aggregates := range []int{1, 100, 10_000} {
			for _, relays := range []int{1, 4} {
				s.Measurements = append(s.Measurements, spread(p, latency, aggregates, relays))
			}
		}
		all = append(all, s)
	}
	return all
}

func spread(p *postgres.Server, latency time.Duration, aggregates, relays int) measure.Measurement {
	name := fmt.Sprintf("relay.%dms_%d_aggregates_%d_relays", latency.Milliseconds(), aggregates, relays)
	return measure.Measurement{
		Figures: []measure.Figure{{Name: name, Unit: "event/s"}},
		Run: measure.Single(outboxVolumes, func(ctx context.Context, v outboxVolume) (float64, error) {
			b := backlog{aggregates: min(aggregates, v.spread), versions: max(1, v.spread/aggregates)}
			return b.onDatabase(ctx, p, func(ctx context.Context, d *postgres.Database) (float64, error) {
				return relay.Through(ctx, latency, func(ctx context.Context, o *relay.Outlet) (float64, error) {
					return relay.Drain(ctx, d, o, relays, b.events(), relay.AnyXact)
				})
			})
		}),
	}
}

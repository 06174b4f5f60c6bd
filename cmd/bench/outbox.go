package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/rig/postgres"
	"example.com/lockstep/cmd/bench/rig/relay"
)

// The outbox beside the source document's loop, and beside what the client and
// the database do alone. Each run has a database of its own, copied from a
// template, and a broker of its own.

// outboxVolume is how much of it is done.
type outboxVolume struct {
	backlog backlog       // what waits to be relayed
	spread  int           // events in the table of latencies and aggregates
	limit   time.Duration // of a loop that is too slow for the backlog
	writing time.Duration // of a run of the write path
	samples int           // of a latency
	claims  int           // timed in each state of the table
	scale   float64       // of the states that a table gets into
	idle    time.Duration // of an idle relay
	refused int           // events beside a refused one
}

var outboxVolumes = [...]outboxVolume{
	measure.Quick: {
		backlog: backlog{100, 20}, spread: 1_000, limit: 300 * time.Millisecond, writing: 200 * time.Millisecond,
		samples: 100, claims: 3, scale: 0.01, idle: time.Second, refused: 1_000,
	},
	measure.Normal: {
		backlog: backlog{1_000, 100}, spread: 20_000, limit: 2 * time.Second, writing: time.Second,
		samples: 2_000, claims: 15, scale: 1, idle: 20 * time.Second, refused: 10_000,
	},
	measure.Full: {
		backlog: backlog{1_000, 100}, spread: 40_000, limit: 5 * time.Second, writing: 3 * time.Second,
		samples: 5_000, claims: 30, scale: 1, idle: time.Minute, refused: 10_000,
	},
}

func outboxSeries(p *postgres.Server) []measure.Series {
	return slices.Concat(
		[]measure.Series{outboxThroughput(p)}, outboxSpread(p), outboxWriting(p), outboxLatency(p), outboxClaims(p), outboxCosts(p))
}

// outboxThroughput is how fast a backlog leaves.
func outboxThroughput(p *postgres.Server) measure.Series {
	const latency = 5 * time.Millisecond
	side := func(name, note string, once func(context.Context, outboxVolume) (float64, error)) measure.Measurement {
		figure := measure.Figure{Name: "relay." + name, Unit: "event/s", Note: note}
		return measure.Measurement{Figures: []measure.Figure{figure}, Run: measure.Single(outboxVolumes, once)}
	}
	ours := func(latency time.Duration) func(context.Context, outboxVolume) (float64, error) {
		return func(ctx context.Context, v outboxVolume) (float64, error) {
			return v.backlog.onDatabase(ctx, p, func(ctx context.Context, d *postgres.Database) (float64, error) {
				return relay.Through(ctx, latency, func(ctx context.Context, o *relay.Outlet) (float64, error) {
					return relay.Drain(ctx, d, o, 1, v.backlog.events(), relay.AnyXact)
				})
			})
		}
	}
	seed := func(latency time.Duration) func(context.Context, outboxVolume) (float64, error) {
		return func(ctx context.Context, v outboxVolume) (float64, error) {
			return v.backlog.onPool(ctx, p, func(ctx context.Context, db *pgxpool.Pool) (float64, error) {
				return relay.Through(ctx, latency, func(ctx context.Context, o *relay.Outlet) (float64, error) {
					return seedRelay(ctx, db, o, v.limit)
				})
			})
		}
	}
	return measure.Series{
		Title: "outbox: a backlog of 1,000 aggregates with 100 events each leaves",
		Measurements: []measure.Measurement{
			side("events_5ms", "a publish takes 5 ms; order checked", ours(latency)),
			side("serial_5ms", "the source document's loop", seed(latency)),
			side("client_5ms", "a request per aggregate from memory, as many at once as the relay has",
				func(ctx context.Context, v outboxVolume) (float64, error) {
					return relay.Through(ctx, latency, func(ctx context.Context, o *relay.Outlet) (float64, error) {
						return bareClient(ctx, o, v.backlog)
					})
				}),
			side("bare_sql", fmt.Sprintf("claim and mark %d in a statement each, and do nothing with them", bareBatch),
				func(ctx context.Context, v outboxVolume) (float64, error) {
					return v.backlog.onPool(ctx, p, func(ctx context.Context, db *pgxpool.Pool) (float64, error) {
						return bareStatements(ctx, db, v.backlog.events())
					})
				}),
			side("events_instant", "a publish costs nothing; order checked", ours(relay.Instant)),
			side("seed_instant", "the source document's loop", seed(relay.Instant)),
		},
		Derived: []measure.Derived{
			{
				Figure: measure.Figure{Name: "relay.limit_5ms", Unit: "event/s", Note: "1/(1/client + 1/bare SQL)"},
				From:   []string{"relay.client_5ms", "relay.bare_sql"},
				Compute: func(in []float64) float64 {
					return 1 / (1/in[0] + 1/in[1])
				},
			},
			measure.Ratio("relay.vs_serial_5ms", "relay.events_5ms", "relay.serial_5ms", "50 or more wanted"),
			measure.Ratio("relay.vs_limit_5ms", "relay.events_5ms", "relay.limit_5ms", "0.8 or more wanted"),
			measure.Ratio("relay.vs_seed_sql", "relay.events_instant", "relay.seed_instant", "5 or more wanted"),
			measure.Ratio("relay.vs_bare_sql", "relay.events_instant", "relay.bare_sql", "0.8 or more wanted"),
		},
	}
}

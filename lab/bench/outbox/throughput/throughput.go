// Package throughput is the series of the rate at which a backlog leaves: by
// our relay, by the source document's loop, and by the client and the simplest
// statements alone; and of the effect of latency, aggregates and relays on that
// rate.
package throughput

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/outbox/backlog"
	"example.com/lockstep/lab/bench/rig/postgres"
	"example.com/lockstep/lab/bench/rig/relay"
)

// volume is the amount of work of each size.
type volume struct {
	backlog backlog.Backlog // the events that wait
	spread  int             // events in the table of latencies and aggregates
	limit   time.Duration   // of a loop that is too slow for the backlog
}

var volumes = [...]volume{
	measure.Quick:  {backlog.Backlog{Aggregates: 100, Versions: 20}, 1_000, 300 * time.Millisecond},
	measure.Normal: {backlog.Backlog{Aggregates: 1_000, Versions: 100}, 20_000, 2 * time.Second},
	measure.Full:   {backlog.Backlog{Aggregates: 1_000, Versions: 100}, 40_000, 5 * time.Second},
}

// Series returns the series.
func Series(p *postgres.Server) []measure.Series {
	return append([]measure.Series{rivals(p)}, spread(p)...)
}

// rivals compares the rates at which a backlog leaves.
func rivals(p *postgres.Server) measure.Series {
	return measure.Series{
		Title: "outbox: a backlog of 1,000 aggregates with 100 events each leaves",
		Measurements: []measure.Measurement{
			side("events_5ms", "a publish takes 5 ms; order checked", ours(p, relay.Latency)),
			side("serial_5ms", "the source document's loop", source(p, relay.Latency)),
			side("client_5ms", "a request per aggregate from memory, as many at once as the relay has", client),
			side("bare_sql", fmt.Sprintf("claim and mark %d in a statement each, and do nothing with them", bareBatch), statements(p)),
			side("events_instant", "a publish costs nothing; order checked", ours(p, relay.Instant)),
			side("seed_instant", "the source document's loop", source(p, relay.Instant)),
		},
		Derived: []measure.Derived{
			{
				Figure:  measure.Figure{Name: "relay.limit_5ms", Unit: "event/s", Note: "1/(1/client + 1/bare SQL)"},
				From:    []string{"relay.client_5ms", "relay.bare_sql"},
				Compute: func(in []float64) float64 { return 1 / (1/in[0] + 1/in[1]) },
			},
			measure.Ratio("relay.vs_serial_5ms", "relay.events_5ms", "relay.serial_5ms", "50 or more wanted"),
			measure.Ratio("relay.vs_limit_5ms", "relay.events_5ms", "relay.limit_5ms", "0.8 or more wanted"),
			measure.Ratio("relay.vs_seed_sql", "relay.events_instant", "relay.seed_instant", "5 or more wanted"),
			measure.Ratio("relay.vs_bare_sql", "relay.events_instant", "relay.bare_sql", "0.8 or more wanted"),
		},
	}
}

// once is one measurement: it relays, or does the work that is compared with
// it, and returns events per second.
type once func(context.Context, volume) (float64, error)

func side(name, note string, run once) measure.Measurement {
	figure := measure.Figure{Name: "relay." + name, Unit: "event/s", Note: note}
	return measure.Measurement{Figures: []measure.Figure{figure}, Run: measure.Single(volumes, run)}
}

// ours is one relay.
func ours(p *postgres.Server, latency time.Duration) once {
	return func(ctx context.Context, v volume) (float64, error) {
		return leave(ctx, p, v.backlog, latency, 1)
	}
}

// leave measures relays that publish a backlog.
func leave(ctx context.Context, p *postgres.Server, b backlog.Backlog, latency time.Duration, relays int) (float64, error) {
	return b.OnDatabase(ctx, p, func(ctx context.Context, d *postgres.Database) (float64, error) {
		return relay.Through(ctx, latency, func(ctx context.Context, o *relay.Outlet) (float64, error) {
			return relay.Drain(ctx, d, o, relays, b.Events(), relay.AnyXact)
		})
	})
}

// source is the source document's loop.
func source(p *postgres.Server, latency time.Duration) once {
	return func(ctx context.Context, v volume) (float64, error) {
		return v.backlog.OnPool(ctx, p, func(ctx context.Context, db *pgxpool.Pool) (float64, error) {
			return relay.Through(ctx, latency, func(ctx context.Context, o *relay.Outlet) (float64, error) {
				return seedRelay(ctx, db, o, v.limit)
			})
		})
	}
}

// client is the Pub/Sub client alone, without a database.
func client(ctx context.Context, v volume) (float64, error) {
	return relay.Through(ctx, relay.Latency, func(ctx context.Context, o *relay.Outlet) (float64, error) {
		return bareClient(ctx, o, v.backlog)
	})
}

// statements are the simplest statements alone, without a broker.
func statements(p *postgres.Server) once {
	return func(ctx context.Context, v volume) (float64, error) {
		return v.backlog.OnPool(ctx, p, func(ctx context.Context, db *pgxpool.Pool) (float64, error) {
			return bareStatements(ctx, db, v.backlog.Events())
		})
	}
}

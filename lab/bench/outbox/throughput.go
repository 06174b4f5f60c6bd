package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// A throughputVolume is the amount of work of each size.
type throughputVolume struct {
	backlog backlog       // the events that wait
	spread  int           // events in the table of latencies and aggregates
	many    backlog       // for the comparison of four relays with one
	short   backlog       // for the comparison with a backlog that is gone within a second
	limit   time.Duration // of a loop that is too slow for the backlog
}

var throughputVolumes = [...]throughputVolume{
	measure.Quick:  {backlog{100, 20}, 1_000, backlog{1_000, 2}, backlog{1_000, 1}, 300 * time.Millisecond},
	measure.Normal: {backlog{1_000, 100}, 20_000, backlog{manyAggregates, 16}, backlog{manyAggregates, 2}, 2 * time.Second},
	measure.Full:   {backlog{1_000, 100}, 40_000, backlog{manyAggregates, 20}, backlog{manyAggregates, 2}, 5 * time.Second},
}

// throughput returns the series of the rate at which a backlog leaves. They compare our relay with
// the plain loop, with the client alone and with the simplest statements alone. They also measure
// the effect of latency, aggregates and relays on the rate.
func throughput(p *rig.Postgres) []measure.Series {
	return append([]measure.Series{compared(p)}, spread(p)...)
}

// compared returns a series of the rate at which a backlog leaves. It compares our relay, the plain
// loop, the client alone, and the simplest statements alone.
func compared(p *rig.Postgres) measure.Series {
	return measure.Series{
		Title: "outbox: a backlog of 1,000 aggregates with 100 events each leaves",
		Measurements: []measure.Measurement{
			rateOf("events_5ms", "a publish takes 5 ms; order checked", ours(p, rig.PublishLatency)),
			rateOf("serial_5ms", "the plain loop", plain(p, rig.PublishLatency)),
			rateOf("client_5ms", "a request per aggregate from memory, as many at once as the relay has", client),
			rateOf("bare_sql", fmt.Sprintf("claim and mark %d in a statement each, and do nothing with them", bareBatch), statements(p)),
			rateOf("events_instant", "a publish costs nothing; order checked", ours(p, rig.NoBroker)),
			rateOf("seed_instant", "the plain loop", plain(p, rig.NoBroker)),
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

// A rate is the function of one measurement. It relays a backlog, or does the work that is compared
// with relaying. It returns events per second.
type rate func(context.Context, throughputVolume) (float64, error)

func rateOf(name, note string, run rate) measure.Measurement {
	figure := measure.Figure{Name: "relay." + name, Unit: "event/s", Note: note}
	return measure.Measurement{Figures: []measure.Figure{figure}, Run: measure.Single(throughputVolumes, run)}
}

// ours measures one relay of ours.
func ours(p *rig.Postgres, latency time.Duration) rate {
	return func(ctx context.Context, v throughputVolume) (float64, error) {
		return leave(ctx, p, v.backlog, latency, 1)
	}
}

// leave measures the rate at which relays publish a backlog.
func leave(
	ctx context.Context, p *rig.Postgres, b backlog, latency time.Duration, relays int,
) (_ float64, err error) {
	d, err := b.database(ctx, p, ourOutbox)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, d.Drop(ctx)) }()
	probe, err := rig.OpenProbe(ctx, latency)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, probe.Close()) }()
	return rig.Drain(ctx, d, probe, relays, b.events(), rig.AnyXact)
}

// plain measures the plain loop, which has its own connections.
func plain(p *rig.Postgres, latency time.Duration) rate {
	return func(ctx context.Context, v throughputVolume) (_ float64, err error) {
		d, db, err := v.backlog.pool(ctx, p, plainOutbox)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, d.Drop(ctx)) }()
		defer db.Close()
		probe, err := rig.OpenProbe(ctx, latency)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, probe.Close()) }()
		return plainLoop(ctx, db, probe, v.limit)
	}
}

// client measures the Pub/Sub client alone, without a database.
func client(ctx context.Context, v throughputVolume) (_ float64, err error) {
	probe, err := rig.OpenProbe(ctx, rig.PublishLatency)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, probe.Close()) }()
	return bareClient(ctx, probe, v.backlog)
}

// statements measures the simplest statements alone, without a broker.
func statements(p *rig.Postgres) rate {
	return func(ctx context.Context, v throughputVolume) (_ float64, err error) {
		d, db, err := v.backlog.pool(ctx, p, bareOutbox)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, d.Drop(ctx)) }()
		defer db.Close()
		return bareStatements(ctx, db, v.backlog.events())
	}
}

// spread returns the series of the rate for several latencies of the broker, numbers of aggregates
// and numbers of relays. The number of aggregates is also the number of concurrent requests.
func spread(p *rig.Postgres) (all []measure.Series) {
	for _, latency := range []time.Duration{0, rig.PublishLatency, 20 * time.Millisecond} {
		title := fmt.Sprintf("outbox: a backlog leaves, a publish takes %s more than the wire", latency)
		few := measure.Series{Title: title, Runs: 1}
		for _, aggregates := range []int{1, 100} {
			few.Measurements = append(few.Measurements, cell(p, latency, aggregates, 1), cell(p, latency, aggregates, 4))
		}
		c := comparison{name: fmt.Sprintf("%dms_10000_aggregates", latency.Milliseconds()), ratio: "four_vs_one", note: "0.95 or more wanted",
			of: func(v throughputVolume) backlog { return v.many }}
		if latency > 0 {
			c.ratio += fmt.Sprintf("_%dms", latency.Milliseconds())
		}
		all = append(all, few, c.series(p, title+", 10,000 aggregates", latency))
	}
	// The start of each relay is a large part of the time in which a short backlog leaves.
	short := comparison{name: "short", ratio: "four_vs_one_short", note: "the starts of the relays included",
		of: func(v throughputVolume) backlog { return v.short }}
	return append(all, short.series(p, "outbox: a short backlog leaves, 10,000 aggregates with 2 events each", 0))
}

const manyAggregates = 10_000

// A comparison compares four relays with one. name is a part of the names of both rates. ratio is a part
// of the name of the rates' ratio.
type comparison struct {
	name, ratio, note string
	of                func(throughputVolume) backlog
}

func (c comparison) series(p *rig.Postgres, title string, latency time.Duration) measure.Series {
	rateOfRelays := func(relays int) measure.Measurement {
		return rateOf(fmt.Sprintf("%s_%d_relays", c.name, relays), "", func(ctx context.Context, v throughputVolume) (float64, error) {
			return leave(ctx, p, c.of(v), latency, relays)
		})
	}
	one, four := rateOfRelays(1), rateOfRelays(4)
	return measure.Series{
		Title: title, Measurements: []measure.Measurement{one, four},
		Derived: []measure.Derived{measure.Ratio("relay."+c.ratio, four.Figures[0].Name, one.Figures[0].Name, c.note)},
	}
}

// cell returns the measurement of one combination of latency, aggregates and relays.
func cell(p *rig.Postgres, latency time.Duration, aggregates, relays int) measure.Measurement {
	name := fmt.Sprintf("%dms_%d_aggregates_%d_relays", latency.Milliseconds(), aggregates, relays)
	return rateOf(name, "", func(ctx context.Context, v throughputVolume) (float64, error) {
		return leave(ctx, p, backlog{aggregates, v.spread / aggregates}, latency, relays)
	})
}

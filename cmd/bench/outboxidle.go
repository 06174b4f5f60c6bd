package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/outbox/backlog"
	"example.com/lockstep/cmd/bench/report"
	"example.com/lockstep/cmd/bench/rig/postgres"
	"example.com/lockstep/cmd/bench/rig/process"
	"example.com/lockstep/cmd/bench/rig/relay"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/localpubsub"
)

// costVolume is how much of it is done.
type costVolume struct {
	idle    time.Duration // of an idle relay
	refused int           // events beside a refused one
}

var costVolumes = [...]costVolume{
	measure.Quick:  {time.Second, 1_000},
	measure.Normal: {20 * time.Second, 10_000},
	measure.Full:   {time.Minute, 10_000},
}

// outboxCosts returns the series.
func outboxCosts(p *postgres.Server) []measure.Series {
	return []measure.Series{
		{Title: "outbox: a relay with nothing to do", Runs: 1, Measurements: []measure.Measurement{idling(p)}},
		{
			Title:        "outbox: 10,000 events leave, one of which is refused; a publish takes 5 ms",
			Measurements: []measure.Measurement{besideRefused(p, "relay.none_refused_ms", false), besideRefused(p, "relay.one_refused_ms", true)},
			Derived: []measure.Derived{measure.Ratio("relay.one_refused_vs_none", "relay.one_refused_ms", "relay.none_refused_ms",
				"until all other aggregates are done; 1.2 or less wanted")},
		},
	}
}

// settleTime is how long a relay has been idle when its statements are counted: its
// pauses have grown by then.
const settleTime = 10 * time.Second

// idling counts statements, and the CPU time of this process and of Postgres's
// sessions, while a relay has nothing to do and nobody else does anything.
func idling(p *postgres.Server) measure.Measurement {
	return measure.Measurement{
		Figures: []measure.Figure{
			{Name: "relay.idle_statements_per_s", Unit: "1/s", Note: "1 or less wanted"},
			{Name: "relay.idle_cpu_percent", Unit: "%", Note: "of a core, the relay's process and its sessions on a private server"},
		},
		Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
			limit := costVolumes[size].idle
			d, err := p.Fresh(ctx)
			if err != nil {
				return measure.Reading{}, err
			}
			defer func() { err = errors.Join(err, d.Drop(ctx)) }()
			o, err := relay.Open(ctx, relay.Instant)
			if err != nil {
				return measure.Reading{}, err
			}
			defer func() { err = errors.Join(err, o.Close()) }()
			var statements counter
			pool, err := d.TracedPool(ctx, postgres.ServiceConns, &statements)
			if err != nil {
				return measure.Reading{}, err
			}
			c := new(relay.Crew)
			defer c.Close()
			if err := c.Add(pool, o); err != nil {
				return measure.Reading{}, err
			}
			c.Start(ctx)
			eventing.Sleep(ctx, min(settleTime, limit), nil)
			sessions, err := d.Sessions(ctx)
			if err != nil {
				return measure.Reading{}, err
			}
			pids := append([]int{os.Getpid()}, sessions...)
			before, used, start := statements.Load(), process.CPU(pids...), time.Now()
			eventing.Sleep(ctx, limit, nil)
			took := time.Since(start)
			// No less than what can be told: one statement, one tick of CPU time.
			rate := float64(max(statements.Load()-before, 1)) / took.Seconds()
			busy := max(process.CPU(pids...)-used, process.Tick).Seconds() / took.Seconds()
			return measure.Reading{Values: []float64{rate, 100 * busy}, Note: fmt.Sprintf("%d s, told in steps of %s",
				int(took.Seconds()), report.Display(100*process.Tick.Seconds()/took.Seconds()))}, ctx.Err()
		},
	}
}

// counter counts statements.
type counter struct{ atomic.Int64 }

// TraceQueryStart is called before each statement.
func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.Add(1)
	return ctx
}

// TraceQueryEnd is called after each.
func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// besideRefused measures until all other aggregates' events have left. The refused
// one is in the middle of its aggregate's.
func besideRefused(p *postgres.Server, name string, refused bool) measure.Measurement {
	const versions, middle = 10, 5
	return measure.Measurement{
		Figures: []measure.Figure{{Name: name, Unit: "ms"}},
		Run: measure.Single(costVolumes, func(ctx context.Context, v costVolume) (float64, error) {
			b := backlog.Backlog{Aggregates: v.refused / versions, Versions: versions}
			return b.OnDatabase(ctx, p, func(ctx context.Context, d *postgres.Database) (_ float64, err error) {
				var faults []localpubsub.Fault
				if refused {
					faults = append(faults, localpubsub.Fault{Kind: localpubsub.Reject, Key: b.ID(0, middle).String()})
				}
				o, err := relay.Open(ctx, relay.Latency, faults...)
				if err != nil {
					return 0, err
				}
				defer func() { err = errors.Join(err, o.Close()) }()
				c, err := relay.NewCrew(ctx, d, o, 1)
				if err != nil {
					return 0, err
				}
				defer c.Close()
				o.Ignored = b.Key(0)
				o.Expect(b.Events() - versions)
				start := time.Now()
				c.Start(ctx)
				err = o.Await(ctx)
				return measure.Milliseconds(time.Since(start)), err
			})
		}),
	}
}

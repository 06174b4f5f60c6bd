package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/report"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing/backoff"
)

// settleTime is the time for which a relay is idle before its statements are counted. After this
// time, the relay's pauses have grown.
const settleTime = 10 * time.Second

// idling returns a measurement of a relay that has no work, while no other load runs. It counts the
// relay's statements. It also measures the CPU time of this process and of its Postgres sessions.
func idling(p *rig.Postgres) measure.Measurement {
	return measure.Measurement{
		Figures: []measure.Figure{
			{Name: "relay.idle_statements_per_s", Unit: "1/s", Note: "1 or less wanted"},
			{Name: "relay.idle_cpu_percent", Unit: "%", Note: "of a core, the relay's process and its sessions on a private server"},
		},
		Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
			d, err := p.Fresh(ctx)
			if err != nil {
				return measure.Reading{}, err
			}
			defer func() { err = errors.Join(err, d.Drop(ctx)) }()
			probe, err := rig.OpenProbe(ctx, rig.NoBroker)
			if err != nil {
				return measure.Reading{}, err
			}
			defer func() { err = errors.Join(err, probe.Close()) }()
			var statements rig.Statements
			pool, err := d.TracedPool(ctx, rig.ServiceConns, &statements)
			if err != nil {
				return measure.Reading{}, err
			}
			relays := new(rig.Relays)
			defer relays.Close()
			relays.Add(pool, probe)
			relays.Start(ctx)
			return watch(ctx, d, &statements, costVolumes[size].idle)
		},
	}
}

// watch waits until the relay has settled, and then counts for the duration limit.
func watch(ctx context.Context, d *rig.Database, statements *rig.Statements, limit time.Duration) (measure.Reading, error) {
	backoff.Sleep(ctx, min(settleTime, limit), nil)
	sessions, err := d.Sessions(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	pids := append([]int{os.Getpid()}, sessions...)
	before, used, start := statements.Load(), rig.CPU(pids...), time.Now()
	backoff.Sleep(ctx, limit, nil)
	took := time.Since(start)
	// The figures are at least as large as their resolution, which is one statement and one tick of
	// CPU time.
	rate := float64(max(statements.Load()-before, 1)) / took.Seconds()
	busy := max(rig.CPU(pids...)-used, rig.Tick).Seconds() / took.Seconds()
	return measure.Reading{Values: []float64{rate, 100 * busy}, Note: fmt.Sprintf("%d s, in steps of %s",
		int(took.Seconds()), report.Display(100*rig.Tick.Seconds()/took.Seconds()))}, ctx.Err()
}

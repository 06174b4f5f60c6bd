package outbox

import (
	"context"
	"errors"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/localpubsub"
)

// A costVolume is the amount of work of each size.
type costVolume struct {
	idle    time.Duration // of an idle relay
	refused int           // number of events in the measurements of a refused event
}

var costVolumes = [...]costVolume{
	measure.Quick:  {time.Second, 1_000},
	measure.Normal: {10 * time.Second, 10_000},
	measure.Full:   {time.Minute, 10_000},
}

// cost returns two series. They measure the cost of an idle relay, and the cost of a refused event
// for the other events.
func cost(p *rig.Postgres) []measure.Series {
	return []measure.Series{
		{Title: "outbox: a relay with nothing to do", Runs: 1, Measurements: []measure.Measurement{idling(p)}},
		{
			Title:        "outbox: 10,000 events leave, one of which is refused; a publish takes 5 ms",
			Measurements: []measure.Measurement{withRefused(p, "relay.none_refused_ms", false), withRefused(p, "relay.one_refused_ms", true)},
			Derived: []measure.Derived{measure.Ratio("relay.one_refused_vs_none", "relay.one_refused_ms", "relay.none_refused_ms",
				"until all other aggregates are done; 1.2 or less wanted")},
		},
	}
}

// withRefused returns a measurement of the time until the events of all other aggregates are
// published. If refused is true, one event in the middle of its aggregate's events is refused.
func withRefused(p *rig.Postgres, name string, refused bool) measure.Measurement {
	const versions, middle = 10, 5
	return measure.Measurement{
		Figures: []measure.Figure{{Name: name, Unit: "ms"}},
		Run: measure.Single(costVolumes, func(ctx context.Context, v costVolume) (_ float64, err error) {
			b := backlog{aggregates: v.refused / versions, versions: versions}
			d, err := b.database(ctx, p, ourOutbox)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, d.Drop(ctx)) }()
			var faults []localpubsub.Fault
			if refused {
				faults = append(faults, localpubsub.Fault{Kind: localpubsub.Reject, Key: b.id(0, middle).String()})
			}
			probe, err := rig.OpenProbe(ctx, rig.PublishLatency, faults...)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, probe.Close()) }()
			relays, err := rig.NewRelays(ctx, d, probe, 1)
			if err != nil {
				return 0, err
			}
			defer relays.Close()
			probe.Ignored = b.key(0)
			probe.Expect(b.events() - versions)
			start := time.Now()
			relays.Start(ctx)
			err = probe.Await(ctx)
			return measure.Milliseconds(time.Since(start)), err
		}),
	}
}

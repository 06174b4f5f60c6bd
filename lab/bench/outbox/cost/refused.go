package cost

import (
	"context"
	"errors"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/outbox/backlog"
	"example.com/lockstep/lab/bench/rig/postgres"
	"example.com/lockstep/lab/bench/rig/relay"
	"example.com/lockstep/localpubsub"
)

// besideRefused measures the time until all other aggregates' events are
// published. The refused event is in the middle of its aggregate's events.
func besideRefused(p *postgres.Server, name string, refused bool) measure.Measurement {
	const versions, middle = 10, 5
	return measure.Measurement{
		Figures: []measure.Figure{{Name: name, Unit: "ms"}},
		Run: measure.Single(volumes, func(ctx context.Context, v volume) (float64, error) {
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

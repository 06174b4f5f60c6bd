package outbox

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// drainedEvents is the number of events that are drained. Each aggregate has two of them.
const drainedEvents = 20_000

// draining returns a measurement of the rate at which a backlog leaves a table in state s.
func (k *states) draining(name string, s state) measure.Measurement {
	return measure.Measurement{
		Figures: []measure.Figure{{Name: name, Unit: "event/s", Note: s.note + "; a publish costs nothing"}},
		Run: measure.Single(claimVolumes, func(ctx context.Context, v claimVolume) (_ float64, err error) {
			d, err := k.keep(ctx, s, v.scale)
			if err != nil {
				return 0, err
			}
			n := scaled(drainedEvents, v.scale)
			since, err := appendBacklog(ctx, d, backlog{aggregates: n / 2, versions: 2})
			if err != nil {
				return 0, err
			}
			probe, err := rig.OpenProbe(ctx, rig.NoBroker)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, probe.Close()) }()
			return rig.Drain(ctx, d, probe, 1, n, since)
		}),
	}
}

// appendBacklog adds a backlog of new aggregates. since is a transaction id that is not later than
// the id of the transaction that added the backlog.
func appendBacklog(ctx context.Context, d *rig.Database, b backlog) (since string, err error) {
	err = d.AsAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, `SELECT pg_current_xact_id()::text`).Scan(&since); err != nil {
			return err
		}
		prefix := uuid.NewString()
		_, err := conn.Exec(ctx, `
			INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
			SELECT gen_random_uuid(), 'video', $3 || a, 'VideoUpdated', v, $4
			  FROM generate_series(1, $1::int) v, generate_series(0, $2::int - 1) a`, b.versions, b.aggregates, prefix, rig.Payload)
		return err
	})
	return since, err
}

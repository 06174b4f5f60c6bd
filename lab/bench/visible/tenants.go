package visible

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

// These are the two tenants, and the rate of the quiet tenant in events per second. The rate is so
// low that an event never waits for other events of its own tenant.
const (
	quietTenant, busyTenant = "quiet", "busy"
	quietLoad               = 20
)

// tenantVolumes has the number of events of the quiet tenant that are timed, and the number of
// pending events of the busy tenant. The quiet tenant is measured alone, and then next to the
// pending events.
var tenantVolumes = [...]struct{ samples, backlog int }{
	measure.Quick: {20, 10_000}, measure.Normal: {150, 200_000}, measure.Full: {1200, 200_000},
}

// tenants returns the series of a quiet tenant next to a busy tenant.
func tenants(p *rig.Postgres) measure.Series {
	const alone, noisy = "tenant.alone_p99_ms", "tenant.noisy_p99_ms"
	return measure.Series{
		Long:  true,
		Title: fmt.Sprintf("commit to visible, %d events/s of one tenant, while 200,000 events of another are pending", quietLoad),
		Measurements: []measure.Measurement{{Figures: []measure.Figure{
			{Name: "tenant.alone_p50_ms", Unit: "ms"}, {Name: alone, Unit: "ms"},
			{Name: "tenant.noisy_p50_ms", Unit: "ms"}, {Name: noisy, Unit: "ms"},
		}, Run: through(p, 1, noisyNeighbour)}},
		Derived: []measure.Derived{measure.Ratio("tenant.noisy_p99_ratio", noisy, alone, "2 or less wanted")},
	}
}

func noisyNeighbour(ctx context.Context, l *pipeline, size measure.Size) (measure.Reading, error) {
	v := tenantVolumes[size]
	quiet := func(ctx context.Context, _ int) error { return l.commitFor(ctx, quietTenant, 1) }
	timed := func() ([]float64, error) {
		if err := l.checkpoint(ctx); err != nil {
			return nil, err
		}
		if _, err := measure.Paced(ctx, quietLoad, v.samples, quiet); err != nil {
			return nil, err
		}
		took, err := l.committed(ctx)
		return measure.Percentiles(took, 50, 99), err
	}
	alone, err := timed()
	if err != nil {
		return measure.Reading{}, err
	}
	if err := l.commitFor(ctx, busyTenant, v.backlog); err != nil {
		return measure.Reading{}, err
	}
	noisy, err := timed()
	if err != nil {
		return measure.Reading{}, err
	}
	var left int
	err = l.DB.QueryRow(ctx, `SELECT count(*) FROM outbox WHERE published_at IS NULL AND tenant_id = $1`, busyTenant).Scan(&left)
	return measure.Reading{
		Values: append(alone, noisy...),
		Note:   fmt.Sprintf("%d samples a run; %d events of the busy tenant were pending at the end", v.samples, left),
	}, err
}

// commitFor commits events for the creation of n videos of a tenant, in one transaction.
func (l *pipeline) commitFor(ctx context.Context, tenant string, n int) error {
	const statement = 1000
	var last eventing.Event
	err := pgx.BeginFunc(ctx, l.DB, func(tx pgx.Tx) error {
		for n > 0 {
			events := make([]eventing.Event, min(n, statement))
			for i := range events {
				e, err := rig.VideoEvent(uuid.Must(uuid.NewV7()), 1)
				if err != nil {
					return err
				}
				e.TenantID = tenant
				events[i] = e
			}
			if err := outbox.Append(ctx, tx, nil, events...); err != nil {
				return err
			}
			n, last = n-len(events), events[len(events)-1]
		}
		return nil
	})
	if err != nil {
		return err
	}
	l.reach(atCommit, last.Key())
	l.Relays.Wake()
	return nil
}

// checkpoint makes both databases write to the disk now what they would write later, such as the
// pages of a large backlog. It also forgets the earlier events.
func (l *pipeline) checkpoint(ctx context.Context) error {
	_, err := l.model.Admin.Exec(ctx, `CHECKPOINT`)
	err = errors.Join(err, l.Checkpoint(ctx))
	l.forget()
	return err
}

// committed waits until the events whose commit was recorded are visible. It returns the time that
// each of these events took, and forgets all events. Other events may still be on their way.
func (l *pipeline) committed(ctx context.Context) ([]time.Duration, error) {
	for {
		took, all := l.visible()
		if all {
			l.forget()
			return took, nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (l *pipeline) visible() (took []time.Duration, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.seen {
		switch {
		case e[atCommit].IsZero():
		case e[atVisible].IsZero():
			return nil, false
		default:
			took = append(took, max(0, e[atVisible].Sub(e[atCommit])))
		}
	}
	return took, true
}

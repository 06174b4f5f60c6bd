package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/lab/bench/rig"
)

// state is a state that the table of an outbox gets into.
type state struct {
	name, note string
	wanted     string // the wanted ratio of a claim to a claim in an empty outbox
	// fill makes the state from an empty outbox. scale is 1, or less in a quick run.
	fill func(ctx context.Context, conn *pgx.Conn, scale float64) error
	// If held is true, a transaction that began before fill stays open.
	held bool
}

const atMostHalfMore = "1.5 or less wanted"

var (
	emptyOutbox = state{name: "empty", note: "nothing else in the table"}
	heldOutbox  = state{
		name: "held_transaction", note: "200,000 rows published under a transaction that is still open", wanted: atMostHalfMore,
		fill: publishedOneByOne(200_000), held: true,
	}
	parkedOutbox = state{
		name: "parked", note: "1,000,000 rows wait behind 1,000 parked aggregates", wanted: atMostHalfMore,
		fill: waitingRows(1_000_000, true),
	}
	pendingOutbox = state{
		name: "1m_pending", note: "1,000,000 rows of 1,000 aggregates wait", fill: waitingRows(1_000_000, false),
	}
	publishedOutbox = state{name: "1m_published", note: "1,000,000 published rows", fill: publishedRows(1_000_000)}
	hugeOutbox      = state{
		name: "10m_published", note: "10,000,000 published rows", wanted: atMostHalfMore, fill: publishedRows(10_000_000),
	}
)

// states has one database for each state. The databases live as long as the server.
type states struct {
	server *rig.Postgres
	kept   map[string]*rig.Database
}

// keep returns the database in a state. The first call creates the database. Later calls return it
// as the measurements have left it, because they add little to it.
func (k *states) keep(ctx context.Context, s state, scale float64) (_ *rig.Database, err error) {
	if d := k.kept[s.name]; d != nil {
		return d, nil
	}
	d, err := k.server.Fresh(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make an outbox %s: %w", s.name, err), d.Drop(ctx))
		}
	}()
	if s.held {
		if err := d.Hold(ctx); err != nil {
			return nil, err
		}
	}
	if s.fill != nil {
		if err := d.AsAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error { return s.fill(ctx, conn, scale) }); err != nil {
			return nil, err
		}
	}
	// Autovacuum would do this sooner or later. It must not do this in the middle of a measurement.
	err = d.AsAdmin(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `VACUUM (ANALYZE) video.outbox`)
		return err
	})
	if err != nil {
		return nil, err
	}
	k.kept[s.name] = d
	return d, nil
}

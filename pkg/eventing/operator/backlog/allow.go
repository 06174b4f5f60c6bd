package backlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// ErrNoHole is returned for an aggregate whose next event the outbox takes without an operator.
var ErrNoHole = errors.New("there is no hole to allow")

// Hole describes an aggregate whose row is at a later version than its newest event in the outbox. The
// outbox refuses the row's next event (outbox.ErrVersionSkipped), until the hole is allowed.
type Hole struct {
	// Newest is the newest event of the aggregate in the outbox.
	Newest Event `json:"newest"`
	// Version is the version of the aggregate's row.
	Version int64 `json:"row_version"`
	// Missing is the number of versions after Newest, up to Version, that have no event.
	Missing int64 `json:"missing"`
}

// PlanAllow returns the hole of an aggregate, and changes nothing. version is the version of the
// aggregate's row, which the caller has read before the call. PlanAllow returns ErrNoHole if the outbox takes the
// event of the next version: it is the version after the newest event, or the outbox has no event of the
// aggregate, or the hole is already allowed.
func (b *Backlog) PlanAllow(ctx context.Context, aggregateType, aggregateID string, version int64) (Hole, error) {
	found, err := bounded.Collect(ctx, b.db.Statement("plan allow", `
		SELECT `+columns+`, o.gapless FROM outbox o
		 WHERE o.aggregate_type = $1 AND o.aggregate_id = $2
		 ORDER BY o.version DESC LIMIT 1`, aggregateType, aggregateID), pgx.RowToStructByName[struct {
		Event
		Gapless bool
	}])
	name := aggregateType + "/" + aggregateID
	switch {
	case err != nil:
		return Hole{}, err
	case len(found) == 0:
		return Hole{}, fmt.Errorf("%s: %w: the outbox has no event of it, and takes any version", name, ErrNoHole)
	}
	h := Hole{found[0].Event, version, version - found[0].Version}
	switch {
	case !found[0].Gapless:
		return Hole{}, fmt.Errorf("%s: %w: it is allowed already, behind version %d", name, ErrNoHole, h.Newest.Version)
	case h.Missing <= 0:
		return Hole{}, fmt.Errorf("%s: %w: the row is at version %d, and the outbox at version %d", name, ErrNoHole, version, h.Newest.Version)
	}
	return h, nil
}

// Allow lets the outbox take the next event of the aggregate that has the hole h. The versions of the hole
// stay without an event: a consumer sees the gap with the next event, and repairs itself from the owner.
// From then on the outbox refuses holes again. If the aggregate has got an event since PlanAllow returned h,
// or the hole is already allowed, the error is ErrNoHole.
func (b *Backlog) Allow(ctx context.Context, o audit.Actor, h Hole) error {
	e := h.Newest
	return b.db.Tx(ctx, "allow", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			UPDATE outbox o SET gapless = false
			 WHERE o.id = $1 AND o.version = $2 AND o.gapless
			   AND NOT EXISTS (SELECT FROM outbox n
			         WHERE n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version)`,
			e.ID, e.Version)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return fmt.Errorf("%s/%s: %w any more", e.AggregateType, e.AggregateID, ErrNoHole)
		}
		return audit.Write(ctx, tx, "allow", o, audit.Subject{
			EventID: e.ID, AggregateType: e.AggregateType, AggregateID: e.AggregateID, Version: e.Version,
		})
	})
}

package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PresentEpoch is a subquery: the epoch in which an owner is. A read that has it among its
// columns gets row and epoch from one snapshot.
const PresentEpoch = `(SELECT max(epoch) FROM outbox_epochs)`

// ErrEpochEnded means that an event is of another epoch than the owner's present one. The
// caller rolls back, and decides again in the present epoch.
var ErrEpochEnded = errors.New("the epoch of the event is not the present one")

// Epoch is the present epoch of an owner, read once. Append refuses events of any other,
// so that a value which has become old in the meantime does no harm: after ErrEpochEnded
// the caller calls Forget and tries again.
type Epoch struct {
	db    *pgxpool.Pool
	known atomic.Int64 // 0: not read yet
}

// NewEpoch returns the epoch of the outbox that db's search_path finds.
func NewEpoch(db *pgxpool.Pool) *Epoch { return &Epoch{db: db} }

// Present returns the epoch. It asks the database at the first call, and at the first
// after Forget.
func (e *Epoch) Present(ctx context.Context) (int64, error) {
	if known := e.known.Load(); known > 0 {
		return known, nil
	}
	var present int64
	if err := e.db.QueryRow(ctx, `SELECT `+PresentEpoch).Scan(&present); err != nil {
		return 0, fmt.Errorf("read epoch: %w", err)
	}
	e.known.Store(present)
	return present, nil
}

// Forget makes the next Present ask the database.
func (e *Epoch) Forget() { e.known.Store(0) }

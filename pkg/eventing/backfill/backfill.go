package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/projection"
)

const (
	// lease is how long a backfill has the lease after it has renewed it. It is longer than the time
	// between two renewals, which is at most an attempt and a pause.
	lease = 30 * time.Second
	// pageTimeout bounds an attempt to fill a page. An attempt takes less than a second.
	pageTimeout = 15 * time.Second
	// step is the longest pause in which a Run does not renew its lease.
	step = 5 * time.Second
	// outage is how long the owner or the database may be away, for example for a restart. It also
	// covers clocks of the two databases that differ by some seconds.
	outage = 30 * time.Second
	// patience is how long a Run goes on trying to fill a page after the first failed attempt for that
	// page. An attempt takes up to pageTimeout. So the last attempt begins outage after the first failure, or
	// later.
	patience = outage + pageTimeout
	// maxFailed bounds the rows of a Run that cannot be written. Each such row costs a line in the
	// log and a transaction. So if the table refuses all rows, the Run does not go on to the end.
	maxFailed = 1000
)

var pageRetry = backoff.Policy{Base: 500 * time.Millisecond, Cap: step}

var (
	// ErrRunning means that another backfill of the same type has the lease.
	ErrRunning = errors.New("another backfill runs")
	// ErrReplica means that the owner answers from a replica that has not reached the time at
	// which the backfill started.
	ErrReplica = errors.New("the owner answers from a replica that lags")
	// ErrRefused means that the table refuses many rows. Rows that are filled stay, and the next
	// Run goes on after the refused rows.
	ErrRefused = errors.New("the table refuses many rows")
)

// CheckFailed returns ErrRefused if rows is more than maxFailed. rows is the number of rows that a
// Run could not write.
func CheckFailed(rows int64) error {
	if rows <= maxFailed {
		return nil
	}
	return fmt.Errorf("%w, %d until now: if it refuses all, correct the table and begin again; else run it again, and it goes on behind them",
		ErrRefused, rows)
}

// Filler is the read model of one type of aggregate, such as a *projection.Projection.
type Filler interface {
	// Type is the aggregate type.
	Type() string
	// Fill writes the page of the owner's rows that begins at the id from, or the first page if
	// from is empty.
	Fill(ctx context.Context, from string) (projection.Filled, error)
}

// State is how far the backfill of a type has come.
type State struct {
	Type string `json:"aggregate_type"`
	// RowsRead counts the owner's rows that were read.
	RowsRead int64 `json:"rows_read"`
	// RowsWritten counts the rows that were written to the read model. It may lack rows of a page during
	// which the process was killed.
	RowsWritten int64 `json:"rows_written"`
	// RowsFailed counts the rows that this Run could not write. It does not include the rows that an
	// earlier Run could not write. Package reconcile finds the rows of all Runs.
	RowsFailed int64 `json:"rows_failed"`
	// StartedAt is the time at which the present backfill began; nil before the first backfill.
	StartedAt *time.Time `json:"started_at"`
	// FinishedAt is the time at which the present backfill ended; nil until then.
	FinishedAt *time.Time `json:"finished_at"`
	// Estimate is about how many rows the owner has, 0 before the first page.
	Estimate int64 `json:"-"`
	// Err is the error of an attempt that Run repeats, or nil.
	Err error `json:"-"`

	next string
}

// Options has a safe zero value.
type Options struct {
	// Rate is the most rows per second; 0 is no limit.
	Rate int
	// Restart begins with the first page, even if the last backfill has finished or was cut off.
	Restart bool
}

// Run fills the whole read model, and returns when it is done. It continues a backfill that was cut
// off. If the last backfill has finished, Run returns its State at once, unless o.Restart is set.
// Run calls passed with the State at the begin, after each page, and, with Err set, after each
// attempt that failed. If the database or the owner is away, Run tries again for half a minute. After that
// Run returns the error, and the next Run continues. The error is ErrRunning if another process has the
// lease, and ErrRefused if more than 1000 rows could not be written.
func Run(ctx context.Context, db *pgxpool.Pool, f Filler, o Options, passed func(State)) (s State, err error) {
	r := &run{db: bounded.Pool{DB: db, Limit: storeTimeout}, filler: f, passed: passed, holder: pgtype.UUID{Bytes: uuid.New(), Valid: true}}
	if s, err = r.claim(ctx, o.Restart); err != nil || s.FinishedAt != nil {
		return s, err
	}
	defer r.release(ctx)
	passed(s)
	for s.FinishedAt == nil {
		began, before := time.Now(), s.RowsRead
		if s, err = r.page(ctx, s); err != nil {
			break
		}
		passed(s)
		if err = CheckFailed(s.RowsFailed); err != nil {
			break
		}
		if err = r.pause(ctx, s, pauseAfter(s.RowsRead-before, o.Rate, time.Since(began))); err != nil {
			break
		}
	}
	if err != nil {
		return s, fmt.Errorf("%s, after %d rows: %w", s.Type, s.RowsRead, err)
	}
	return s, nil
}

// run is the state of one call of Run.
type run struct {
	db     bounded.Pool
	filler Filler
	passed func(State)
	// holder identifies this run in the lease.
	holder pgtype.UUID
}

// page fills the next page, and tries again after failures.
func (r *run) page(ctx context.Context, s State) (State, error) {
	var failing time.Time
	for range pageRetry.Attempts(ctx) {
		after, err := r.fill(ctx, s)
		if err == nil {
			return after, nil
		}
		failing = cmp.Or(failing, time.Now())
		if time.Since(failing) > patience || eventing.IsPermanent(err) || errors.Is(err, ErrRunning) || ctx.Err() != nil {
			return s, err
		}
		r.report(s, err)
		if err := r.renew(ctx, s); err != nil {
			return s, err
		}
	}
	return s, ctx.Err()
}

// report calls the function passed with the error of an attempt.
func (r *run) report(s State, err error) {
	s.Err = err
	r.passed(s)
}

// renew renews the lease. It returns no other error than ErrRunning. If the database is away, the
// next attempt for a page fails too, and patience bounds these attempts.
func (r *run) renew(ctx context.Context, s State) error {
	_, err := r.save(ctx, s, false)
	if errors.Is(err, ErrRunning) {
		return err
	}
	if err != nil && ctx.Err() == nil {
		r.report(s, err)
	}
	return nil
}

// fill fills the next page and saves the progress.
func (r *run) fill(ctx context.Context, s State) (State, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	f, err := r.filler.Fill(ctx, s.next)
	if err != nil {
		return s, err
	}
	if f.AsOf.Before(*s.StartedAt) {
		return s, fmt.Errorf("%w: its rows are of %s, and the backfill started at %s", ErrReplica, stamp(f.AsOf), stamp(*s.StartedAt))
	}
	s.next, s.Estimate = f.Next, f.Estimate
	s.RowsRead, s.RowsWritten, s.RowsFailed = s.RowsRead+int64(f.Rows), s.RowsWritten+int64(f.Written), s.RowsFailed+int64(f.Failed)
	return r.save(ctx, s, f.Done)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// pauseAfter returns the pause after a page. rows is the number of rows in the page, and took is
// how long the page took. With the pause, a Run fills at most perSecond rows per second.
func pauseAfter(rows int64, perSecond int, took time.Duration) time.Duration {
	if perSecond == 0 {
		return 0
	}
	return max(0, time.Duration(rows)*time.Second/time.Duration(perSecond)-took)
}

// pause waits, and renews the lease meanwhile.
func (r *run) pause(ctx context.Context, s State, left time.Duration) error {
	for ; left > 0 && s.FinishedAt == nil; left -= step {
		if !backoff.Sleep(ctx, min(left, step), nil) {
			return ctx.Err()
		}
		if left <= step {
			return nil
		}
		if err := r.renew(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

package projection

import (
	"context"
	"math/rand/v2"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/consistency"
)

const (
	// completeEvery is the pause between two passes over the incomplete rows. A new build
	// finds those of the build before at its start; later ones come from instances of the
	// older build that still run.
	completeEvery = time.Minute
	// completePause is the pause between two calls to the owner: an instance makes at most
	// 20 calls a second, of up to consistency.MaxPositions rows.
	completePause = 50 * time.Millisecond
	// queryTimeout bounds a statement of a pass.
	queryTimeout = 5 * time.Second
	// maxCounted bounds the count of incomplete rows.
	maxCounted = 10_000
	// maxRefused is how many rows that cannot be written end a pass: each has a line in the log,
	// and the next pass, which goes on behind them, comes up to a minute later.
	maxRefused = 100
)

var completeRetry = backoff.Policy{Base: time.Second, Cap: time.Minute}

// IncompleteRows is a table whose rows have an inbox.Completeness.
type IncompleteRows interface {
	// Incomplete returns the ids of up to limit rows that are incomplete and of a lower
	// revision than this build's, after the id called after, in the order of their keys.
	// One FetchMany can fetch them all.
	Incomplete(ctx context.Context, after string, limit int) (ids []string, err error)
	// CountIncomplete counts up to limit incomplete rows, of any revision.
	CountIncomplete(ctx context.Context, limit int) (int64, error)
}

// Completion brings the rows that an older build has left incomplete up to date with the
// owner's state: see inbox.Completeness.
type Completion[S any] struct {
	*Projection[S]

	rows IncompleteRows
	// after is the id behind which the next pass begins.
	after string
}

// NewCompletion returns the completion of p's table, which is rows.
func NewCompletion[S any](p *Projection[S], rows IncompleteRows) *Completion[S] {
	return &Completion[S]{Projection: p, rows: rows}
}

// Run works until ctx ends, and returns nil. The load is bounded: a page of rows and a
// call to the owner at a time, with a pause between. While the owner or the database is
// unavailable it waits, with backoff. A row that cannot be read or written is left, with a line
// in the log, and holds up no other one. Several instances do the same work; a row that is
// up to date is not written again. heartbeat is called at least every two minutes.
func (c *Completion[S]) Run(ctx context.Context, heartbeat func()) error {
	for failures := 0; ctx.Err() == nil; {
		heartbeat()
		pause := completeEvery/2 + rand.N(completeEvery/2)
		if err := c.pass(ctx, heartbeat); err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			failures++
			pause = completeRetry.Delay(failures)
			c.log.WarnContext(ctx, "incomplete rows not brought up to date yet",
				"aggregate_type", c.aggregate.Type(), "error", err, "retry_in_ms", pause.Milliseconds())
		}
		backoff.Sleep(ctx, pause, nil)
	}
	return nil
}

// pass goes over the incomplete rows once, in the order of their keys, or up to maxRefused rows
// that cannot be written.
func (c *Completion[S]) pass(ctx context.Context, heartbeat func()) error {
	completed, refused := 0, 0
	for ctx.Err() == nil && refused < maxRefused {
		heartbeat()
		ids, err := c.next(ctx, c.after)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			c.after = ""
			break
		}
		written, failed, err := c.complete(ctx, ids)
		if err != nil {
			return err
		}
		completed, refused, c.after = completed+written, refused+failed, ids[len(ids)-1]
		backoff.Sleep(ctx, completePause, nil)
	}
	if completed > 0 {
		c.log.InfoContext(ctx, "rows that an older build had left incomplete are up to date",
			"aggregate_type", c.aggregate.Type(), "rows", completed)
	}
	return c.count(ctx)
}

func (c *Completion[S]) next(ctx context.Context, after string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return c.rows.Incomplete(ctx, after, consistency.MaxPositions)
}

// complete takes the owner's state of these aggregates, and returns how many rows it has
// moved, and how many cannot be written. A row that the owner does not know, or answers about
// from an earlier time, is left for the next pass.
func (c *Completion[S]) complete(ctx context.Context, ids []string) (written, failed int, err error) {
	rows, _, asOf, err := c.aggregate.FetchMany(ctx, ids, repairTimeout)
	if err != nil {
		return 0, 0, err
	}
	written, failed, err = c.takeOver(ctx, rows, asOf)
	completedRows.Add(ctx, int64(written), c.ofType())
	return written, failed, err
}

func (c *Completion[S]) count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	n, err := c.rows.CountIncomplete(ctx, maxCounted)
	if err == nil {
		incompleteRows.Record(ctx, n, c.ofType())
	}
	return err
}

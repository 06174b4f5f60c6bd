package projection

import (
	"context"
	"math/rand/v2"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/consistency"
)

const (
	// completeEvery is the longest pause between two passes over the incomplete rows. A new build
	// finds the incomplete rows of the older build at its start. Later incomplete rows come from
	// instances of the older build that still run.
	completeEvery = time.Minute
	// completePause is the pause between two calls to the owner. So an instance makes at most 20
	// calls a second, of up to consistency.MaxPositions rows each.
	completePause = 50 * time.Millisecond
	// queryTimeout bounds a statement of a pass.
	queryTimeout = 5 * time.Second
	// maxCounted bounds the count of incomplete rows.
	maxCounted = 10_000
	// maxRefused is the number of rows that cannot be written after which a pass ends. The next
	// pass begins up to a minute later, and goes on after these rows.
	maxRefused = 100
)

var completeRetry = backoff.Policy{Base: time.Second, Cap: time.Minute}

// IncompleteRows is a table whose rows have an inbox.Completeness.
type IncompleteRows interface {
	// Incomplete returns the ids of up to limit rows that are incomplete and of a lower revision
	// than this build's. The ids are in the order of the keys, and all come behind the id in the
	// argument after. One FetchMany must be able to fetch all of them.
	Incomplete(ctx context.Context, after string, limit int) (ids []string, err error)
	// CountIncomplete counts up to limit incomplete rows, of any revision.
	CountIncomplete(ctx context.Context, limit int) (int64, error)
}

// Completion finds the rows that an older build has left incomplete, and brings them up to date
// with the owner's state: see inbox.Completeness.
type Completion[S any] struct {
	*Projection[S]

	rows IncompleteRows
	// after is the id behind which the next page of rows begins.
	after string
}

// NewCompletion returns the completion of p. rows is p's table.
func NewCompletion[S any](p *Projection[S], rows IncompleteRows) *Completion[S] {
	return &Completion[S]{Projection: p, rows: rows}
}

// Run works until ctx ends, and returns nil. It bounds the load: it makes one call to the owner for
// one page of rows at a time, with a pause between two pages. While the owner or the database is
// unavailable, Run waits, with backoff. A row that cannot be read or written is skipped, with a
// line in the log, and does not hold up other rows. Several instances do the same work, but a row
// that is up to date is not written again. Run calls heartbeat at least every two minutes.
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

// pass goes over the incomplete rows once, in the order of their keys. It ends early after
// maxRefused rows that cannot be written.
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

// complete writes the owner's state of these aggregates. It returns how many rows it has moved, and
// how many could not be written. A row is left for the next pass if the owner does not know it, or
// if the owner's answer is from before the row.
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

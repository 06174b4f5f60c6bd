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
	// maxRefused is a number of rows. After so many rows that cannot be written, a pass ends. The next pass
	// begins up to a minute later, and goes on after these rows.
	maxRefused = 100
)

var completeRetry = backoff.Policy{Base: time.Second, Cap: time.Minute}

// Complete finds the rows that an older build has left incomplete, and brings them up to date with
// the owner's state: see inbox.Completeness. It works until ctx ends, and returns nil. It bounds the
// load: it makes one call to the owner for one page of rows at a time, with a pause between two
// pages. While the owner or the database is unavailable, Complete waits, with backoff. A row that
// cannot be read or written, or that another transaction has locked for two seconds, is skipped, with
// a line in the log, and does not hold up other rows. Several instances do the same work, but a row
// that is up to date is not written again. Complete calls heartbeat at least every two minutes.
func (p *Projection[S]) Complete(ctx context.Context, heartbeat func()) error {
	after := "" // the id behind which the next page of rows begins
	for failures := 0; ctx.Err() == nil; {
		heartbeat()
		pause := completeEvery/2 + rand.N(completeEvery/2)
		var err error
		if after, err = p.pass(ctx, after, heartbeat); err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			failures++
			pause = completeRetry.Delay(failures)
			p.log.WarnContext(ctx, "incomplete rows not brought up to date yet",
				"aggregate_type", p.aggregate.Type(), "error", err, "retry_in_ms", pause.Milliseconds())
		}
		backoff.Sleep(ctx, pause, nil)
	}
	return nil
}

// pass goes over the incomplete rows behind the id after once, in the order of their keys. It ends
// early after maxRefused rows that cannot be written. It returns the id behind which the next pass
// begins.
func (p *Projection[S]) pass(ctx context.Context, after string, heartbeat func()) (string, error) {
	completed, refused := 0, 0
	for ctx.Err() == nil && refused < maxRefused {
		heartbeat()
		ids, err := p.nextIncomplete(ctx, after)
		if err != nil {
			return after, err
		}
		if len(ids) == 0 {
			after = ""
			break
		}
		written, failed, err := p.complete(ctx, ids)
		if err != nil {
			return after, err
		}
		completed, refused, after = completed+written, refused+failed, ids[len(ids)-1]
		backoff.Sleep(ctx, completePause, nil)
	}
	if completed > 0 {
		p.log.InfoContext(ctx, "rows that an older build had left incomplete are up to date",
			"aggregate_type", p.aggregate.Type(), "rows", completed)
	}
	return after, p.countIncomplete(ctx)
}

func (p *Projection[S]) nextIncomplete(ctx context.Context, after string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return p.aggregate.Incomplete(ctx, after, consistency.MaxPositions)
}

// complete writes the owner's state of these aggregates. It returns how many rows it has moved, and
// how many could not be written. A row is left for the next pass if the owner does not know it, if
// the owner's answer is from before the row, or if the row is locked.
func (p *Projection[S]) complete(ctx context.Context, ids []string) (written, failed int, err error) {
	rows, _, asOf, err := p.fetchAll(ctx, ids, repairTimeout)
	if err != nil {
		return 0, 0, err
	}
	written, failed, err = p.takeOver(ctx, rows, asOf, leaveLocked)
	completedRows.Add(ctx, int64(written), p.ofType())
	return written, failed, err
}

func (p *Projection[S]) countIncomplete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	n, err := p.aggregate.CountIncomplete(ctx, maxCounted)
	if err == nil {
		incompleteRows.Record(ctx, n, p.ofType())
	}
	return err
}

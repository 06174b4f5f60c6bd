package reconcile

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/backoff"
)

// outage is how long the reader's database may be away, for example for a restart or a failover, before a check
// ends with its error.
const outage = 30 * time.Second

var readPause = backoff.Policy{Base: 500 * time.Millisecond, Cap: 5 * time.Second}

// tryAgain calls read until read succeeds. It returns the error of read if the database is not away (isAway),
// or if read has failed for longer than outage. read must change nothing. tryAgain reports each failed attempt
// that it repeats to seen, unless seen is nil.
func tryAgain[T any](ctx context.Context, seen Observer, read func() (T, error)) (result T, err error) {
	var failing time.Time
	for range readPause.Attempts(ctx) {
		if result, err = read(); err == nil {
			return result, nil
		}
		failing = cmp.Or(failing, time.Now())
		if !isAway(err) || time.Since(failing) > outage || ctx.Err() != nil {
			break
		}
		if seen != nil {
			seen.Retries(ctx, err)
		}
	}
	return result, err
}

// isAway reports whether err means that the database could not be reached, or gave no answer, or can do no work.
func isAway(err error) bool {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.Contains([]string{"57P01", "57P02", "57P03"}, pg.Code) || // shutdown, crash, start
			slices.Contains([]string{"08", "53", "58"}, pg.Code[:min(2, len(pg.Code))]) // connection, resources, system
	}
	var network net.Error // also a deadline
	return errors.As(err, &network) || pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// minePage reads a page of the reader's rows.
func (r *run) minePage(ctx context.Context, in Range) (Page, error) {
	return tryAgain(ctx, r.observer, func() (Page, error) { return r.Reader.Page(ctx, r.definition, in) })
}

// ownLeaves are the reader's leaves in the ranges of an owner's part. complete is as in Table.leaves.
type ownLeaves struct {
	leaves   []own
	complete bool
}

// mineLeaves digests the reader's rows in the ranges of the part owners, which begins at the id from.
func (r *run) mineLeaves(ctx context.Context, from string, owners Part) (ownLeaves, error) {
	return tryAgain(ctx, r.observer, func() (ownLeaves, error) {
		leaves, complete, err := r.Reader.leaves(ctx, r.definition, from, owners)
		return ownLeaves{leaves, complete}, err
	})
}

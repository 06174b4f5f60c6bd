package bounded

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

// outage is how long TryAgain tries. The database may be away for that time, for example for a restart or a failover.
const outage = 30 * time.Second

// againPause is the pause between two attempts of TryAgain.
var againPause = backoff.Policy{Base: 500 * time.Millisecond, Cap: 5 * time.Second}

// TryAgain calls do until do succeeds. It returns the error of do if the database is not away (isAway), or if do has
// failed for longer than half a minute. An attempt whose answer was lost may have succeeded, so do must be safe to
// repeat. TryAgain passes the error of each failed attempt that it repeats to seen, unless seen is nil.
func TryAgain[T any](ctx context.Context, seen func(error), do func() (T, error)) (result T, err error) {
	var failing time.Time
	for range againPause.Attempts(ctx) {
		if result, err = do(); err == nil {
			return result, nil
		}
		failing = cmp.Or(failing, time.Now())
		if !isAway(err) || time.Since(failing) > outage || ctx.Err() != nil {
			break
		}
		if seen != nil {
			seen(err)
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
			slices.Contains([]string{"57P05", "25006"}, pg.Code) || // a session that was idle, or is of a former primary
			slices.Contains([]string{"08", "53", "58"}, pg.Code[:min(2, len(pg.Code))]) // connection, resources, system
	}
	var network net.Error // also a deadline, and net.ErrClosed
	return errors.As(err, &network) || pgconn.SafeToRetry(err) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

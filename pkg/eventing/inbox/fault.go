package inbox

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// fault says whose an error is.
type fault int

const (
	// ours is the event's, or its handler's: it is counted.
	ours fault = iota
	// slowness was ended by a time limit. Unless the database is away, it is the
	// event's: waiting would meet it again.
	slowness
	// outage is the database's or the network's: time mends it. It is waited out
	// and counts against nobody.
	outage
)

func (f fault) String() string { return [...]string{"failed", "timeout", "outage"}[f] }

// handlerError is an error of the handler's, not of the transaction around it.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }

func faultOf(err error) fault {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return outage // whatever the server said: no event was part of it
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return faultOfState(pg.Code)
	}
	if _, ok := errors.AsType[handlerError](err); ok && errors.Is(err, context.DeadlineExceeded) {
		return slowness
	}
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &network) ||
		// A connection that broke under a statement has no SQLSTATE; whether
		// its COMMIT arrived is unknown, and it counts as failed.
		pgconn.SafeToRetry(err) || isBrokenConnection(err) {
		return outage
	}
	return ours
}

// faultOfState classifies SQLSTATEs, by class where the whole class is meant
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
func faultOfState(code string) fault {
	switch code {
	case "57014", // a statement took too long
		"25P03": // the transaction was idle for too long
		return slowness
	case "40001", "40P01", // serialization failure, deadlock: the others went first
		"55P03",                            // somebody else holds a lock for long
		"25006",                            // read-only: a failover is under way
		"42501",                            // a missing grant: every event would fail
		"42P01", "42703", "42883", "3F000", // a missing table, column, function or schema: not migrated yet
		"26000", "42P05": // another session than before: a pooler, and a mode that is not for it
		return outage
	}
	switch code[:2] {
	case "08", // connection
		"53", // resources: connections, disk, memory
		"57", // operator: shutdown, crash recovery
		"58": // system error
		return outage
	}
	return ours
}

func isBrokenConnection(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}

// faultOf is faultOf for an event that is alone: a time limit is an outage
// unless the database answers.
func (c *Consumer) faultOf(ctx context.Context, err error) fault {
	f := faultOf(err)
	if f == slowness && !c.store.answers(ctx) {
		return outage
	}
	return f
}

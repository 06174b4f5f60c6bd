package inbox

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// fault is the cause of an error. Consumer.classify is the one place that decides it.
type fault int

const (
	// eventFault is the fault of the event or its handler: it is counted.
	eventFault fault = iota
	// timedOut means that a time limit has ended the transaction. The event is at fault
	// while others succeed, and the failure is counted.
	timedOut
	// locked is the fault of another transaction that holds a lock which the event needs.
	// It costs the event's aggregate time, and spends no attempt.
	locked
	// outage is the fault of the database or the network, which time repairs. It is waited
	// out and spends no attempt.
	outage
)

func (f fault) String() string { return [...]string{"failed", "timeout", "locked", "outage"}[f] }

// handlerError is an error of the handler's, not of the transaction around it.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }

// classify decides the cause of err, the error of a transaction that began at began. A time
// limit is an outage when the process did not run, or when the database does not take the
// smallest write in time either.
func (c *Consumer) classify(ctx context.Context, err error, began time.Time) fault {
	f := faultOf(err)
	if f == timedOut && (c.stalls.stalledSince(began) || !c.store.writes(ctx)) {
		return outage
	}
	return f
}

func faultOf(err error) fault {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return outage // whatever the server answered: no event was part of it
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return faultOfState(pg.Code)
	}
	if _, ok := errors.AsType[handlerError](err); ok && errors.Is(err, context.DeadlineExceeded) {
		return timedOut
	}
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &network) ||
		// A connection that broke during a statement leaves no SQLSTATE. If the statement
		// was COMMIT, it may have succeeded: the batch is applied again, and finds that.
		pgconn.SafeToRetry(err) || isBrokenConnection(err) {
		return outage
	}
	return eventFault
}

// faultOfState classifies SQLSTATEs, by class where the whole class is meant
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
func faultOfState(code string) fault {
	switch code {
	case "57014", // a statement took too long
		"25P03": // the transaction was idle for too long
		return timedOut
	case "55P03": // another transaction holds a lock for long
		return locked
	case "40001", "40P01", // serialization failure, deadlock: the others went first
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
	return eventFault
}

func isBrokenConnection(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "conn closed")
}

// Events of maxSlow aggregates that meet a time limit, with no success in between, are no
// longer at fault.
const maxSlow = 3

// streak is the set of aggregates whose events failed since the last success. The worker
// goroutine owns it.
type streak struct{ keys map[string]struct{} }

// add reports whether there are as many as most now.
func (s *streak) add(key string, most int) bool {
	if s.keys == nil {
		s.keys = map[string]struct{}{}
	}
	if len(s.keys) < most {
		s.keys[key] = struct{}{}
	}
	return len(s.keys) >= most
}

// succeeded notes that n events were handled: the database and this build are fine.
func (c *Consumer) succeeded(n int) {
	clear(c.slow.keys)
	c.unknown.success(n)
}

const (
	tickEvery = 250 * time.Millisecond
	// stallTime is the delay of a tick from which on the process counts as stalled: it was
	// stopped, or got no CPU.
	stallTime = time.Second
)

// stallDetector notices that the process did not run for a while: a time limit that passed
// meanwhile is no event's fault. Instants compare by the monotonic clock, because the wall
// clock may step back. A tick is late by either clock, because the monotonic clock may
// stand still with the machine. A wall clock that steps forward looks like that, once.
type stallDetector struct{ last, stalled atomic.Pointer[reading] }

// reading is both clocks at one instant.
type reading struct {
	monotonic time.Time
	wall      int64
}

func readClocks() reading {
	now := time.Now()
	return reading{monotonic: now, wall: now.UnixNano()}
}

func (p *stallDetector) run(ctx context.Context) {
	ticker := time.NewTicker(tickEvery)
	defer ticker.Stop()
	for {
		p.note(readClocks())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *stallDetector) note(now reading) {
	if p.late(now) {
		p.stalled.Store(&now)
	}
	p.last.Store(&now)
}

// stalledSince reports whether the process stalled after t. The caller may ask before the
// next tick.
func (p *stallDetector) stalledSince(t time.Time) bool {
	stalled := p.stalled.Load()
	return stalled != nil && !stalled.monotonic.Before(t) || p.late(readClocks())
}

func (p *stallDetector) late(now reading) bool {
	last := p.last.Load()
	return last != nil && (now.monotonic.Sub(last.monotonic) > stallTime || now.wall-last.wall > int64(stallTime))
}

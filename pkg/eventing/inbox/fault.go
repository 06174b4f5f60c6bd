package inbox

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// fault is the cause of an error. Only Consumer.classify decides it.
type fault int

const (
	// eventFault means that the event or its handler is at fault. The failure counts as an
	// attempt.
	eventFault fault = iota
	// timedOut means that a time limit or the limit of temporary files has ended the transaction, that the
	// handler could not reach a service of its own, or that its statements have broken connections (breaks).
	// The event is at fault, and the failure counts as an attempt. There are two exceptions: events of other
	// aggregates have timed out, too (maxSlow), or the event has met no time limit before (firstLimit).
	timedOut
	// locked means that another transaction holds a lock that the event needs. The event's
	// aggregate waits, and no attempt is spent.
	locked
	// lacking means that the database lacks an object (lacksObject), memory or room on its disk that a
	// statement of the handler needs, or cannot use a file or a page, while it takes the consumer's own writes. A
	// migration, a grant, a release or an administrator repairs that for all events together. The event's
	// aggregate waits, and no attempt is spent. If events of maxFailing aggregates fail already, such an
	// error counts as an outage.
	lacking
	// outage means that the database or the network is at fault. The consumer waits until the
	// outage is over, and no attempt is spent.
	outage
)

func (f fault) String() string {
	return [...]string{"failed", "timeout", "locked", "lacking", "outage"}[f]
}

// handlerError is an error that the handler returned. Other errors come from the transaction around
// the handler.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }

// lostConnectionError is the error of a transaction whose connection is closed.
type lostConnectionError struct{ error }

func (e lostConnectionError) Unwrap() error { return e.error }

// classify decides the cause of err, the error of a transaction of batch that began at the time began. A
// time limit counts as an outage if the process did not run meanwhile, or if the database does not
// take the smallest write in time either. An outage counts as a time limit if batch breaks its connections, and
// as the fault of the handler's statement (faultOfStatement) if the database takes the smallest write.
func (c *Consumer) classify(ctx context.Context, batch []*delivery, err error, began time.Time) fault {
	f := faultOf(err)
	switch {
	case f == timedOut && (c.stalls.stalledSince(began) || !c.store.writes(ctx)):
		return outage
	case f == outage && c.breaks(ctx, batch, err):
		return timedOut
	case f == outage:
		if own := faultOfStatement(err); own != outage && c.blocked.failing() < maxFailing && c.store.writes(ctx) {
			return own
		}
	}
	return f
}

// maxFailing is a number of aggregates. If that many are blocked because their events fail, an error that
// may be an outage counts as an outage. Probably all events fail then, and to try each aggregate alone
// again and again would load the database for nothing.
const maxFailing = 200

// faultOfStatement classifies err, which looks like an outage, for the case that the database takes other
// writes. Perhaps the handler's statement fails, and only some events need that statement. The other events
// must not wait for it, so faultOfStatement then returns lacking or timedOut. Otherwise it returns outage.
func faultOfStatement(err error) fault {
	_, handlers := errors.AsType[handlerError](err)
	_, lost := errors.AsType[lostConnectionError](err)
	pg, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !handlers || lost || !ok:
		return outage
	case pg.Code == "53400": // a limit of the session's, such as temp_file_limit
		return timedOut
	case lacksObject(pg.Code), lacksResource(pg.Code):
		// Memory may suffice for other statements. A full disk still takes small writes that need no new page, and a
		// file or a page of one table may be broken.
		return lacking
	}
	return outage // such as a deadlock: the next try may succeed
}

func faultOf(err error) fault {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return outage // whatever the server answered, because no event was sent yet
	}
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return faultOfServer(pg)
	}
	if own, ok := errors.AsType[handlerError](err); ok {
		_, lost := errors.AsType[lostConnectionError](err)
		return faultOfHandler(own, lost)
	}
	if errors.Is(err, context.DeadlineExceeded) || isOfNetwork(err) {
		return outage
	}
	return eventFault
}

// faultOfHandler classifies an error without an SQLSTATE. lost says that the connection is closed. While
// the connection works, the error is not the connection's, even if it looks so: a payload that is cut off
// gives io.ErrUnexpectedEOF, too. If it were an outage, one event would hold up all others for ever. For the
// same reason a closed connection alone is no outage: pgx also closes it at the end of the statement's
// time, and after a value that it cannot encode.
func faultOfHandler(err handlerError, lost bool) fault {
	var network net.Error // also that of a service of the handler's own
	switch {
	case lost && isOfNetwork(err) && !errors.Is(err, context.DeadlineExceeded):
		return outage
	case lost, errors.Is(err, context.DeadlineExceeded), errors.As(err, &network):
		return timedOut
	}
	return eventFault
}

// isOfNetwork reports whether err looks like an error of the connection. A connection that broke during a
// statement leaves no SQLSTATE. If the statement was COMMIT, it may have succeeded. The batch is then
// applied again, and finds its events done.
func isOfNetwork(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, context.Canceled) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed)
}

// firstLimit reports whether d, which has just met a time limit alone, has met none before. The database, its network
// or its disk may have stood still, and work again by now. A slow handler is slow at the next try, too. An event that
// breaks its connections has had its free tries (maxBreaks).
func (d *delivery) firstLimit() bool {
	first := !d.limited && d.breaks < maxBreaks
	d.limited = true
	return first
}

// maxBreaks is a number of broken connections. If transactions of an event alone have broken that many in
// the handler, the last break and each further one count as time limits of the event. The breaks before
// count as outages.
const maxBreaks = 3

// breaks reports whether batch is at fault because the handler's statements have broken the connection. err
// is the error of batch's transaction, and looks like an outage. A statement can end the server's process
// of its connection, for example by its memory. Then the server ends all other sessions, too, and recovers.
// So an event with such a statement makes one outage after another.
//
// A batch of several events is at fault the first time, because to halve it costs no attempt. An event that
// is alone is at fault from its break maxBreaks on. For such an event, breaks first waits until the
// database takes writes again, so that the attempt can be counted.
func (c *Consumer) breaks(ctx context.Context, batch []*delivery, err error) bool {
	_, handlers := errors.AsType[handlerError](err)
	_, lost := errors.AsType[lostConnectionError](err)
	if !handlers || !lost {
		return false
	}
	if len(batch) > 1 {
		c.log.WarnContext(ctx, "a handler's statement has broken its connection, halving the batch", "error", err, "events", len(batch))
		return true
	}
	batch[0].breaks++
	if batch[0].breaks < maxBreaks {
		return false
	}
	return c.persist(ctx, "recover", func() error {
		_, err := c.store.register(ctx)
		return err
	}) == nil
}

// maxSlow is a number of aggregates. If events of that many aggregates have met a time limit, with
// no success in between, a time limit no longer counts against the event that met it.
const maxSlow = 3

// streak is the set of aggregates whose events have met a time limit since the last success. The
// worker goroutine owns the set.
type streak struct{ keys map[string]struct{} }

// add adds an aggregate to the streak, and reports whether the streak now has maxSlow aggregates. It keeps
// no more than these.
func (s *streak) add(key string) bool {
	if s.keys == nil {
		s.keys = map[string]struct{}{}
	}
	if len(s.keys) < maxSlow {
		s.keys[key] = struct{}{}
	}
	return len(s.keys) >= maxSlow
}

// succeeded notes that n events were handled, which shows that the database and this build work.
func (c *Consumer) succeeded(n int) {
	clear(c.slow.keys)
	c.unknown.success(n)
}

package inbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing"
)

func TestFaultOf(t *testing.T) {
	t.Parallel()
	state := func(code string) error { return fmt.Errorf("apply: %w", &pgconn.PgError{Code: code}) }
	ofLimit := func(routine string) error {
		return fmt.Errorf("apply: %w", &pgconn.PgError{Code: "54000", Routine: routine})
	}
	for name, c := range map[string]struct {
		err  error
		want fault
	}{
		"serialization failure": {state("40001"), outage},
		"deadlock":              {state("40P01"), outage},
		"lock timeout":          {state("55P03"), locked},
		"statement timeout":     {state("57014"), timedOut},
		"transaction timeout":   {state("25P04"), timedOut},
		"admin shutdown":        {state("57P01"), outage},
		"too many connections":  {state("53300"), outage},
		"connection failure":    {state("08006"), outage},
		"read-only failover":    {state("25006"), outage},
		"no transaction ids":    {ofLimit("GetNewTransactionId"), outage},
		"no multixact ids":      {ofLimit("GetNewMultiXactId"), outage},
		"index entry too large": {ofLimit("index_form_tuple_context"), eventFault},
		"broken page":           {state("XX001"), outage},
		"broken index":          {state("XX002"), outage},
		"internal error":        {state("XX000"), eventFault},
		"deadline":              {fmt.Errorf("q: %w", context.DeadlineExceeded), outage},
		"connection lost":       {fmt.Errorf("q: %w", io.ErrUnexpectedEOF), outage},
		"check violation":       {state("23514"), eventFault},
		"bad value":             {state("22P02"), eventFault},
		"missing table":         {state("42P01"), outage},
		"missing column":        {state("42703"), outage},
		"missing schema":        {state("3F000"), outage},
		"ambiguous column":      {state("42702"), eventFault},
		"pooled statement":      {state("26000"), outage},
		"missing privilege":     {state("42501"), outage},
		"idle in transaction":   {state("25P03"), timedOut},
		"slow handler":          {handlerError{fmt.Errorf("q: %w", context.DeadlineExceeded)}, timedOut},
		"thrown by a handler":   {handlerError{orPanic(io.ErrUnexpectedEOF, nil)}, eventFault},
		"unsendable, and lost":  {lostConnectionError{handlerError{errors.New("unable to encode")}}, timedOut},
		"service away":          {handlerError{fmt.Errorf("q: %w", &url.Error{Op: "Get", Err: io.EOF})}, timedOut},
		"thrown, and lost":      {lostConnectionError{handlerError{orPanic(io.ErrUnexpectedEOF, nil)}}, outage},
		"slow, and so lost":     {lostConnectionError{handlerError{fmt.Errorf("q: %w", context.DeadlineExceeded)}}, timedOut},
		"refused, then lost":    {lostConnectionError{state("25P03")}, timedOut},
		"handler away":          {handlerError{&net.OpError{Op: "dial", Err: errors.New("refused")}}, timedOut},
		"handler's words":       {handlerError{errors.New(`title "my conn closed today" is too long`)}, eventFault},
		"words":                 {errors.New(`aggregate_id: "conn closed"`), eventFault},
		"panic":                 {handlerError{orPanic("bug", nil)}, eventFault},
		"handler's own":         {errors.New("no such kind"), eventFault},
		"no SQLSTATE":           {state(""), eventFault},
	} {
		if got := faultOf(c.err); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Events whose errors the handler calls permanent go to the dead letters at once, also if a time limit is in the errors, and
// however many they are.
func TestAPermanentErrorIsNoTimeLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, calls := b.consumer(t), 0
	c.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
		if change.Event.AggregateID == "good" {
			return b.apply(ctx, tx, change)
		}
		calls++
		return 0, eventing.Permanent(fmt.Errorf("ask: %w", context.DeadlineExceeded))
	})
	for i := range 2 * maxSlow {
		c.finish(t, delivered(event(fmt.Sprint(i), 1)))
	}
	c.finish(t, delivered(event("good", 1)))
	b.isSettled(t, 1, 2*maxSlow)
	if calls != 2*maxSlow {
		t.Errorf("%d calls for %d events", calls, 2*maxSlow)
	}
}

// An error of the handler that looks like one of the network is its event's fault while the connection to the
// database works. All other events are applied.
func TestAHandlersErrorIsNoOutage(t *testing.T) {
	t.Parallel()
	_, address := net.ResolveIPAddr("ip", "127.0.0.1.example:no")
	for name, failure := range map[string]error{
		"cut-off":  io.ErrUnexpectedEOF,
		"empty":    io.EOF,
		"canceled": context.Canceled,
		"deadline": os.ErrDeadlineExceeded,
		"address":  address,
		"words":    errors.New(`title "my conn closed today" is too long`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c := b.consumer(t)
			c.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
				if change.Event.AggregateID == "poison" {
					return 0, fmt.Errorf("body: %w", failure)
				}
				return b.apply(ctx, tx, change)
			})
			c.finish(t, delivered(event("a", 1)), delivered(event("poison", 1)), delivered(event("z", 1)))
			if n := b.count(t, withDone); n != 2 {
				t.Errorf("%d events are done, want the two others", n)
			}
			if dead := b.deadLettered(""); len(dead) != 1 || !strings.Contains(dead[0].Attributes[AttrDeadLetterReason], failure.Error()) {
				t.Errorf("dead letters %v, want the event with its reason", dead)
			}
		})
	}
}

// If the server ends the connection while the handler runs, the batch is applied again.
func TestAConnectionLostInTheHandlerIsAnOutage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	lost := false
	c.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
		if !lost {
			lost = true
			_ = tx.Conn().PgConn().Conn().Close()
			_, err := tx.Exec(ctx, "SELECT 1")
			return 0, fmt.Errorf("read: %w", err)
		}
		return b.apply(ctx, tx, change)
	})
	c.finish(t, delivered(event("a", 1)))
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = 'done' AND attempts = 0`); n != 1 {
		t.Errorf("%d events are done without an attempt spent, want 1", n)
	}
}

// pgx also closes the connection at the end of a statement's time, and after a value that it cannot
// encode. Both are still their event's fault, and hold up no other event.
func TestAnEventThatClosesTheConnectionIsNoOutage(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(context.Context, pgx.Tx) error{
		"a time limit": func(ctx context.Context, tx pgx.Tx) error {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err := tx.Exec(short, `SELECT pg_sleep(10)`)
			return err
		},
		"a value that is not encoded": func(ctx context.Context, tx pgx.Tx) error {
			b := &pgx.Batch{}
			b.Queue(`SELECT 1`)
			b.Queue(`SELECT $1::int4`, int64(math.MaxInt64))
			return tx.SendBatch(ctx, b).Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c := b.consumer(t)
			c.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
				if change.Event.AggregateID == "poison" {
					return 0, fail(ctx, tx)
				}
				return b.apply(ctx, tx, change)
			})
			c.finish(t, delivered(event("a", 1)), delivered(event("poison", 1)), delivered(event("z", 1)))
			if n := b.count(t, withDone); n != 2 {
				t.Errorf("%d events are done, want the two others", n)
			}
			if dead := b.deadLettered(""); len(dead) != 1 {
				t.Errorf("%d dead letters, want that of the event", len(dead))
			}
		})
	}
}

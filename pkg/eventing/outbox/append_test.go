package outbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

func TestAppendCommitsAndRollsBackWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "kept", 1, 1)
	undone := errors.New("the business says no")
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		if err := Append(t.Context(), tx, nil, event("lost", 1), event("lost", 2)); err != nil {
			return err
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	if n := b.count(t, unpublished); n != 1 {
		t.Errorf("%d rows, want the committed one only", n)
	}
}

func TestAppendRunsTheOtherStatementsOfItsBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		var one int
		batch.Queue(`SELECT 1`).QueryRow(func(row pgx.Row) error { return row.Scan(&one) })
		if err := Append(t.Context(), tx, batch, event("a", 1)); err != nil {
			return err
		}
		if one != 1 {
			t.Error("the caller's statement has not run when Append returns")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		batch.Queue(`SELECT 1/0`)
		return Append(t.Context(), tx, batch, event("a", 2))
	})
	if err == nil {
		t.Error("the caller's statement failed and Append did not say so")
	}
	if n := b.count(t, unpublished); n != 1 {
		t.Errorf("%d rows, want 1: the failed statement's event must not be there", n)
	}
}

// A caller may send the same statements again, in another transaction.
func TestAppendLeavesTheCallersBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	runs, batch := 0, &pgx.Batch{}
	batch.Queue(`SELECT 1`).Exec(func(pgconn.CommandTag) error { runs++; return nil })
	undone := errors.New("the business says no")
	for version := range int64(3) {
		err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			if err := Append(t.Context(), tx, batch, event("a", version+1)); err != nil || version > 0 {
				return err
			}
			return undone
		})
		if version == 0 && !errors.Is(err, undone) || version > 0 && err != nil {
			t.Errorf("version %d: %v", version+1, err)
		}
	}
	if n := b.count(t, unpublished); n != 2 || runs != 3 || batch.Len() != 1 {
		t.Errorf("%d events, %d runs, %d statements in the caller's batch; want 2, 3 and 1", n, runs, batch.Len())
	}
}

func TestAppendRefusesAnIDTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := event("a", 1), event("b", 1)
	second.ID = first.ID
	if err := b.appendAll(t, first); err != nil {
		t.Fatal(err)
	}
	if err := b.appendAll(t, second); !errors.Is(err, ErrIDTaken) || errors.Is(err, ErrVersionTaken) {
		t.Errorf("%v, want ErrIDTaken", err)
	}
}

func TestAppendManyInOneStatement(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	events := []eventing.Event{event("a", 1), event("a", 2), event("b", 1)}
	events[1].TenantID, events[1].TraceParent, events[1].SourceEventID = "acme", "trace", uuid.New()
	if err := b.appendAll(t, events...); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, unpublished); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
	e := events[1]
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE id = $1 AND version = 2 AND payload = $2 AND occurred_at = $3
		AND tenant_id = 'acme' AND traceparent = 'trace' AND source_event_id = $4`, e.ID, e.Payload, e.OccurredAt, e.SourceEventID); n != 1 {
		t.Error("an event is not stored as it was given")
	}
}

func TestAppendAcceptsAnEmptyPayload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two, three := event("a", 1), event("b", 1), event("b", 2)
	one.Payload, two.Payload, three.Payload = nil, nil, nil
	if err := b.appendAll(t, one); err != nil {
		t.Error(err)
	}
	if err := b.appendAll(t, two, three); err != nil {
		t.Error(err)
	}
}

func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	answer := event("a", 1)
	answer.SourceEventID = uuid.New()
	if err := b.appendAll(t, answer); err != nil {
		t.Fatal(err)
	}
	large := event("a", 2)
	large.Payload = make([]byte, MaxPayloadBytes+1)
	if err := b.appendAll(t, large); !errors.Is(err, ErrPayloadTooLarge) || !strings.Contains(err.Error(), "payload:") {
		t.Errorf("large payload: %v, want an error that names it", err)
	}
	long := event("a", 2)
	long.TenantID = strings.Repeat("t", 1025)
	if err := b.appendAll(t, long); err == nil || !strings.Contains(err.Error(), "tenant_id:") {
		t.Errorf("long tenant: %v, want an error that names it", err)
	}
	again := event("a", 2)
	again.SourceEventID = answer.SourceEventID
	if err := b.appendAll(t, again); !errors.Is(err, ErrSourceAnswered) {
		t.Errorf("second answer to one event: %v, want ErrSourceAnswered", err)
	}
	other := event("other", 1)
	other.SourceEventID = answer.SourceEventID
	if err := b.appendAll(t, other, event("other", 2)); err != nil {
		t.Errorf("another aggregate's answer: %v", err)
	}
	if err := b.appendAll(t, event("a", 1)); !errors.Is(err, ErrVersionTaken) {
		t.Errorf("second event for one version: %v, want ErrVersionTaken", err)
	}
	if err := b.appendAll(t, event("c", 1), event("c", 1)); !errors.Is(err, ErrVersionTaken) {
		t.Errorf("two events for one version: %v, want ErrVersionTaken", err)
	}
	if n := b.count(t, unpublished); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
}

// The versions of an aggregate have neither a hole nor a second life, however long
// ago the last one was.
func TestAppendTakesTheNextVersionOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if err := b.appendAll(t, event("late", 7), event("late", 8)); err != nil {
		t.Errorf("an aggregate that begins later than its outbox: %v", err)
	}
	b.append(t, "a", 1, 3)
	b.exec(t, `UPDATE outbox SET published_at = now() - interval '8 days'`)
	if _, _, err := b.newRelay(t).queue.Purge(t.Context(), 7*24*time.Hour, 0); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox`); n != 2 {
		t.Fatalf("%d rows are left, want the newest of each aggregate", n)
	}
	for _, tc := range []struct {
		events []eventing.Event
		want   error
	}{
		{[]eventing.Event{event("a", 2)}, ErrVersionTaken},
		{[]eventing.Event{event("a", 3)}, ErrVersionTaken},
		{[]eventing.Event{event("a", 5)}, ErrVersionSkipped},
		{[]eventing.Event{event("a", 4), event("a", 6)}, ErrVersionSkipped},
		{[]eventing.Event{event("b", 2), event("b", 1)}, ErrVersionTaken},
		{[]eventing.Event{event("a", 4), event("b", 1), event("a", 5), event("b", 2)}, nil},
	} {
		if err := b.appendAll(t, tc.events...); !errors.Is(err, tc.want) {
			t.Errorf("%v of %d events: %v, want %v", tc.events[0].Version, len(tc.events), err, tc.want)
		}
	}
	// Rows from before this was so may have been purged up to the newest one.
	b.exec(t, `UPDATE outbox SET gapless = false`)
	if err := b.appendAll(t, event("a", 9)); err != nil {
		t.Errorf("behind a row of the version before: %v", err)
	}
}

// A session plans the statement while the table has a few rows, and keeps the plan.
func TestAppendIsPlannedForALargeTable(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	b := newBenchOn(t, pg)
	vacuum := func() {
		t.Helper()
		pgtest.Exec(t, pg.Pool(t, pg.Admin), `VACUUM ANALYZE app.outbox`)
	}
	vacuum() // which would cut the file where it is empty
	b.append(t, "a", 1, 3)
	vacuum()
	conn, err := b.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	reads := func() (n int) {
		t.Helper()
		err := conn.QueryRow(t.Context(), `SELECT seq_scan FROM pg_stat_user_tables WHERE relid = 'outbox'::regclass`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := reads()
	for n := range 20 { // the sixth plan is the one that is kept
		one, two := fmt.Sprint("one-", n), fmt.Sprint("two-", n)
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			return errors.Join(
				Append(t.Context(), tx, nil, event(one, 1)),
				Append(t.Context(), tx, nil, event(two, 1), event(two, 2)),
			)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pgtest.Exec(t, conn, `SELECT pg_stat_force_next_flush()`)
	if got := reads(); got != before {
		t.Errorf("the whole table was read %d times", got-before)
	}
}

func TestAppendLeavesTheCallersErrorsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `CREATE TEMPORARY TABLE videos (video_id int PRIMARY KEY)`); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		for range 2 {
			batch.Queue(`INSERT INTO videos (video_id) VALUES (1)`)
		}
		return Append(t.Context(), tx, batch, event("a", 1))
	})
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "23505" || errors.Is(err, ErrVersionTaken) || errors.Is(err, ErrSourceAnswered) {
		t.Errorf("%v, want the caller's own unique violation", err)
	}
}

func (b *bench) appendAll(t *testing.T, events ...eventing.Event) error {
	t.Helper()
	return pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return Append(t.Context(), tx, nil, events...) })
}

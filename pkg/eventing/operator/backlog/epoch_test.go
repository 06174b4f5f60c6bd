package backlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/pkg/eventing/txn"
)

// A new epoch is above all others, also after a second restore that has taken the row of
// the epoch before with it. What wrote in the old one is refused from then on.
func TestBeginEpoch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.backlog.BeginEpoch(t.Context(), audit.Actor{}); err == nil {
		t.Error("an epoch began without a name")
	}
	b.append(t, "a", 1)
	first, err := b.backlog.BeginEpoch(t.Context(), order)
	if err != nil || first.Epoch <= eventing.FirstEpoch || first.By != order.By || first.Why != order.Why {
		t.Fatalf("%+v, %v", first, err)
	}
	// A restore takes the row with it. No restore ends within the second of the number.
	pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), `DELETE FROM app.outbox_epochs WHERE epoch = $1`, first.Epoch)
	second, err := b.backlog.BeginEpoch(t.Context(), order)
	if err != nil || second.Epoch < first.Epoch {
		t.Errorf("%+v, %v; want none before %d", second, err, first.Epoch)
	}
	ahead := time.Now().Add(time.Hour).Unix()
	b.exec(t, `INSERT INTO outbox_epochs (epoch, actor, why) VALUES ($1, 'test', 'of a clock that is ahead')`, ahead)
	third, err := b.backlog.BeginEpoch(t.Context(), order)
	if err != nil || third.Epoch <= ahead {
		t.Errorf("%+v, %v; want one after all others", third, err)
	}
	epochs, err := b.backlog.Epochs(t.Context())
	if err != nil || len(epochs) != 4 || epochs[0] != third || epochs[3].Epoch != eventing.FirstEpoch {
		t.Errorf("%+v, %v", epochs, err)
	}
	err = pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		return outbox.Append(t.Context(), tx, nil, eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: "a", Type: "VideoUpdated", Version: 2,
			SchemaVersion: 1, OccurredAt: time.Now(), Epoch: first.Epoch,
		})
	})
	if !errors.Is(err, outbox.ErrEpochEnded) {
		t.Errorf("an event of the epoch before: %v", err)
	}
}

// Two calls at once, or one that is repeated, begin one epoch after the first one.
func TestBeginEpochAfter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Both wait for this transaction.
	writer := pgtest.Begin(t, b.db)
	defer func() { _ = writer.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, writer, `LOCK TABLE outbox IN SHARE UPDATE EXCLUSIVE MODE`)
	type result struct {
		epoch Epoch
		err   error
	}
	begun := make(chan result, 2)
	for range cap(begun) {
		go func() {
			e, err := b.backlog.BeginEpochAfter(t.Context(), order, eventing.FirstEpoch)
			begun <- result{e, err}
		}()
	}
	b.eventually(t, 2, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	pgtest.End(t, writer.Rollback)
	one, other := <-begun, <-begun
	if one.err != nil || other.err != nil || one.epoch.Epoch <= eventing.FirstEpoch || one.epoch != other.epoch {
		t.Errorf("%+v and %+v", one, other)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox_epochs`); n != 2 {
		t.Errorf("%d epochs", n)
	}
	next, err := b.backlog.BeginEpochAfter(t.Context(), order, one.epoch.Epoch)
	if err != nil || next.Epoch <= one.epoch.Epoch {
		t.Errorf("the next: %+v, %v", next, err)
	}
	if e, err := b.backlog.BeginEpochAfter(t.Context(), order, eventing.FirstEpoch); !errors.Is(err, ErrOtherEpoch) {
		t.Errorf("after an epoch of long ago: %+v, %v", e, err)
	}
}

// A transaction has appended an event of the epoch and has not ended. The new epoch waits for it:
// a reader that took the row over in the new epoch would refuse that event as stale.
func TestBeginEpochWaitsForEventsOfTheEpochBefore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tx := pgtest.Begin(t, b.db)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	e := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: "a", Type: "VideoUpdated", Version: 1,
		SchemaVersion: 1, OccurredAt: time.Now(), Epoch: eventing.FirstEpoch,
	}
	if err := outbox.Append(t.Context(), tx, nil, e); err != nil {
		t.Fatal(err)
	}
	began := make(chan error, 1)
	go func() {
		_, err := b.backlog.BeginEpoch(t.Context(), order)
		began <- err
	}()
	b.eventually(t, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	if n := b.count(t, `SELECT count(*) FROM outbox_epochs`); n != 1 {
		t.Errorf("there are %d epochs while an event of the first one is not committed", n)
	}
	pgtest.End(t, tx.Commit)
	if err := <-began; err != nil {
		t.Error(err)
	}
}

// While a new epoch waits for a vacuum, no writer waits behind it.
func TestWritersGoOnWhileAnEpochWaitsForAVacuum(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	vacuum := pgtest.Begin(t, b.db)
	defer func() { _ = vacuum.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, vacuum, `LOCK TABLE outbox IN SHARE UPDATE EXCLUSIVE MODE`)
	began := make(chan error, 1)
	go func() {
		_, err := b.backlog.BeginEpoch(t.Context(), order)
		began <- err
	}()
	for i := range 3 {
		b.eventually(t, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		e := eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: fmt.Sprint(i), Type: "VideoUpdated", Version: 1,
			SchemaVersion: 1, OccurredAt: time.Now(), Epoch: eventing.FirstEpoch,
		}
		err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '5ms'`); err != nil {
				return err
			}
			return outbox.Append(t.Context(), tx, nil, e)
		})
		if err != nil {
			t.Errorf("a write while the epoch waits: %v", err)
		}
	}
	pgtest.End(t, vacuum.Rollback)
	if err := <-began; err != nil {
		t.Error(err)
	}
}

// A transaction with an event does not end. The operator is told, and nothing waits behind.
func TestBeginEpochGivesUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, tx, `LOCK TABLE outbox IN ROW EXCLUSIVE MODE`)
	began := make(chan error, 1)
	go func() {
		_, err := b.backlog.BeginEpoch(t.Context(), order)
		began <- err
	}()
	writer := txn.NewWriter(b.db)
	for i := range 3 {
		b.eventually(t, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
		e := eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: fmt.Sprint(i), Type: "VideoUpdated", Version: 1,
			SchemaVersion: 1, OccurredAt: time.Now(), Epoch: eventing.FirstEpoch,
		}
		if err := writer.Write(t.Context(), tenant.All(), "", func(tx *txn.Tx) error { return outbox.Append(t.Context(), tx, nil, e) }); err != nil {
			t.Errorf("a write between two tries: %v", err)
		}
	}
	err = <-began
	if !txn.IsLockTimeout(err) || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("%v, want that a transaction does not end", err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox_epochs`); n != 1 {
		t.Errorf("%d epochs", n)
	}
}

// After the statements that lock the outbox against writers only COMMIT is sent, so that the writers wait for one round trip to
// a database that is far away.
func TestWritersWaitForOneRoundTripOfAnEpoch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cfg := pgtest.Settings(t, b.pg.URL)
	sent := pgtest.NewStatements()
	cfg.ConnConfig.Tracer = sent
	db := pgtest.Open(t, cfg)
	for name, begin := range map[string]func() error{
		"BeginEpoch": func() error { _, err := New(db).BeginEpoch(t.Context(), order); return err },
		"BeginEpochAfter": func() error {
			present := b.count(t, `SELECT max(epoch) FROM outbox_epochs`)
			_, err := New(db).BeginEpochAfter(t.Context(), order, int64(present))
			return err
		},
	} {
		sent.Forget()
		if err := begin(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if next, _ := sent.After("LOCK TABLE outbox IN SHARE MODE"); next != "commit" {
			t.Errorf("%s sends %.60q after the lock, want commit", name, next)
		}
	}
}

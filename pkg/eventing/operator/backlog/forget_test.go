package backlog

import (
	"testing"
)

// Forget takes published events only, and of the named aggregates: those that wait keep
// their content and their order. The newest stays as a row, so that the next version follows.
func TestForget(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a, c := b.append(t, "a", 4), b.append(t, "c", 2)
	b.append(t, "other", 1)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE version <= 2 OR aggregate_id = 'other'`)
	b.park(t, a[2], "no field 7")
	contents := func(want Contents) {
		t.Helper()
		if got, err := b.backlog.Contents(t.Context(), "video", []string{"a", "c", "none"}); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	contents(Contents{Published: 4, Waiting: 2})
	for range 2 {
		if waiting, err := b.backlog.Forget(t.Context(), "video", []string{"a", "c", "none"}); err != nil || waiting != 2 {
			t.Errorf("%d wait, %v, want 2", waiting, err)
		}
		contents(Contents{Waiting: 2})
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE aggregate_id = 'a' AND version > 2 AND payload <> '' AND published_at IS NULL`); n != 2 {
		t.Errorf("%d events of a wait with their payload, want 2", n)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE id = $1 AND payload = '' AND version = 2`, c[1]); n != 1 {
		t.Error("the newest event of c has gone, or has its payload")
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE aggregate_id = 'other' AND payload <> ''`); n != 1 {
		t.Error("the event of another aggregate has lost its payload")
	}
	if err := b.backlog.RetryOne(t.Context(), order, a[2]); err != nil {
		t.Fatal(err)
	}
	b.relay(t, 1)
	b.eventually(t, 0, `SELECT count(*) FROM outbox WHERE published_at IS NULL`)
	if sent := b.sent("a"); len(sent) != 2 {
		t.Errorf("a has sent %q, want versions 3 and 4", sent)
	}
}

// An event that is published while Forget runs still has its payload, and counts as waiting:
// the caller calls again.
func TestForgetCountsWhatIsPublishedMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1)
	b.append(t, "c", 1)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id = 'a'`)
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `SELECT FROM outbox WHERE aggregate_id = 'a' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	type result struct {
		waiting int64
		err     error
	}
	forgotten := make(chan result, 1)
	go func() {
		n, err := b.backlog.Forget(t.Context(), "video", []string{"a", "c"})
		forgotten <- result{n, err}
	}()
	b.eventually(t, 1, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id = 'c'`)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-forgotten; got != (result{waiting: 1}) {
		t.Errorf("%+v, want 1 that waits", got)
	}
}

package backlog

import (
	"testing"

	"example.com/lockstep/internal/pgtest"
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
	for range 2 { // the second time, the newest event has no payload any more
		b.exec(t, `UPDATE outbox SET last_error = 'the title is odd' WHERE aggregate_id = 'c'`)
		if waiting, err := b.backlog.Forget(t.Context(), "video", []string{"a", "c", "none"}); err != nil || waiting != 2 {
			t.Errorf("%d wait, %v, want 2", waiting, err)
		}
		contents(Contents{Waiting: 2})
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE aggregate_id = 'a' AND version > 2 AND payload <> '' AND published_at IS NULL`); n != 2 {
		t.Errorf("%d events of a wait with their payload, want 2", n)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE id = $1 AND payload = '' AND last_error IS NULL AND version = 2`, c[1]); n != 1 {
		t.Error("the newest event of c has gone, or has its payload or a refusal that may quote it")
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

// A statement takes a bounded number of events, however many an aggregate has had.
func TestForgetIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, occurred_at, published_at)
		SELECT gen_random_uuid(), aggregate_type, aggregate_id, event_type, v, schema_version, payload, occurred_at, now()
		  FROM outbox, generate_series(2, 2500) AS v`)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE version = 1`)
	_, err := b.pg.Pool(t, b.pg.Admin).Exec(t.Context(), `
		CREATE TABLE app.forgotten (events bigint);
		CREATE FUNCTION app.noted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
			$$BEGIN INSERT INTO app.forgotten SELECT count(*) FROM old; RETURN NULL; END$$;
		CREATE TRIGGER noted AFTER DELETE ON app.outbox REFERENCING OLD TABLE AS old FOR EACH STATEMENT EXECUTE FUNCTION app.noted();
		GRANT SELECT ON app.forgotten TO PUBLIC`)
	if err != nil {
		t.Fatal(err)
	}
	if waiting, err := b.backlog.Forget(t.Context(), "video", []string{"a"}); err != nil || waiting != 0 {
		t.Errorf("%d wait, %v", waiting, err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox`); n != 1 {
		t.Errorf("%d events are left, want the newest", n)
	}
	if most, all := b.count(t, `SELECT max(events) FROM forgotten`), b.count(t, `SELECT sum(events)::bigint FROM forgotten`); most > 1000 || all != 2499 {
		t.Errorf("%d events were deleted, %d by one statement", all, most)
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
	tx := pgtest.Begin(t, b.db)
	defer tx.Rollback(t.Context())
	pgtest.Exec(t, tx, `SELECT FROM outbox WHERE aggregate_id = 'a' FOR UPDATE`)
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
	pgtest.End(t, tx.Commit)
	if got := <-forgotten; got != (result{waiting: 1}) {
		t.Errorf("%+v, want 1 that waits", got)
	}
}

// A statement reads the events that it takes, and not all that an aggregate has had: with each of a million versions read
// by each statement, an erasure would not end.
func TestForgetReadsWhatItTakes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at)
		SELECT gen_random_uuid(), 'video', 'hot', 'VideoUpdated', v, 'x', now() FROM generate_series(1, 10000) AS v`)
	var last pgtest.Statement
	b.backlog = New(last.Of(t, b.db))
	if n, waiting, err := b.backlog.forget(t.Context(), "video", []string{"hot", "none"}); err != nil || n != forgetBatch || waiting != 0 {
		t.Fatalf("%d events are forgotten, and %d wait: %v", n, waiting, err)
	}
	if pages := last.Pages(t, b.db); pages > 20*forgetBatch {
		t.Errorf("%d of 10,000 events were read in %d pages", forgetBatch, pages)
	}
}

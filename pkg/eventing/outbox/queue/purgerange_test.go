package queue_test

import (
	"slices"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
)

// TestRelaysShareAPurgePass has two relays take stretches in turn, a page at a time.
func TestRelaysShareAPurgePass(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), 'video', 'a', 'VideoUpdated', v, '' FROM generate_series(1, 500) v`)
	pages := b.count(t, `SELECT pg_relation_size('outbox') / current_setting('block_size')::int`)
	pass := func() (firsts []int) {
		t.Helper()
		for {
			first, due, err := b.NextPurgeRange(t.Context(), time.Hour, 2)
			if err != nil {
				t.Fatal(err)
			}
			if !due {
				return firsts
			}
			firsts = append(firsts, first)
		}
	}
	var want []int
	for p := 0; p < pages; p += 2 {
		want = append(want, p)
	}
	if pages < 5 {
		t.Fatalf("%d pages are too few for a test", pages)
	}
	if got := pass(); !slices.Equal(got, want) {
		t.Errorf("a pass over %d pages: %v", pages, got)
	}
	if got := pass(); got != nil {
		t.Errorf("another one at once: %v", got)
	}
	for _, when := range []string{`now() - interval '61 min'`, `now() + interval '1 min'`} { // a clock may step back
		b.exec(t, `UPDATE outbox_retention SET passed_at = `+when)
		if got := pass(); !slices.Equal(got, want) {
			t.Errorf("with the last at %s: %v", when, got)
		}
	}
	b.exec(t, `UPDATE outbox_retention SET next_page = 2, passed_at = now()`)
	if got := pass(); !slices.Equal(got, want[1:]) {
		t.Errorf("on its way, a pass goes on with %v", got)
	}
	b.exec(t, `UPDATE outbox_retention SET passed_at = '-infinity'`)
	tx := pgtest.Begin(t, b.db)
	defer func() { _ = tx.Rollback(t.Context()) }()
	pgtest.Exec(t, tx, `SELECT FROM outbox_retention FOR UPDATE`)
	if got := pass(); got != nil {
		t.Errorf("while another relay takes one: %v", got)
	}
}

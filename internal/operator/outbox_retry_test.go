package operator

import (
	"context"
	"strings"
	"testing"
)

// A retry works in batches. If it fails, those before are committed, and it says how many events that are.
func TestOutboxRetryThatFailsSaysWhatItHasDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin := b.pg.Pool(t, b.pg.Admin)
	for _, sql := range []string{
		`DO $$ BEGIN EXECUTE format('ALTER ROLE video_service IN DATABASE %I SET lock_timeout = 100', current_database()); END $$`,
		`INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at)
		 SELECT gen_random_uuid(), 'video', to_char(n, '000'), 'VideoCreated', 1, '', now() FROM generate_series(1, 600) AS n`,
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	other, err := admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback(context.WithoutCancel(t.Context()))
	if _, err := other.Exec(t.Context(), `SELECT FROM video.outbox WHERE aggregate_id = to_char(600, '000') FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	_, stderr := b.run(t, 1, "outbox retry --all --why fixed")
	if n := count(t, b.video, `SELECT count(*) FROM outbox WHERE parked_at IS NULL`); n != 500 || !strings.Contains(stderr, "after 500 events") {
		t.Errorf("%d are free, and it says %s", n, stderr)
	}
}

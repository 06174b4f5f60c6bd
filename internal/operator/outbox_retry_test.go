package operator

import (
	"strings"
	"testing"

	"example.com/lockstep/internal/pgtest"
)

// A retry works in batches. If it fails, those before are committed, and it says how many events that are.
func TestOutboxRetryThatFailsSaysWhatItHasDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin := b.pg.Pool(t, b.pg.Admin)
	for _, sql := range []string{
		`INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at)
		 SELECT gen_random_uuid(), 'video', to_char(n, '000'), 'VideoCreated', 1, '', now() - (600 - n) * interval '1 second'
		   FROM generate_series(1, 600) AS n`,
		`CREATE FUNCTION video.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$`,
		`CREATE TRIGGER refuse BEFORE UPDATE ON video.outbox
		 FOR EACH ROW WHEN (NEW.aggregate_id = to_char(600, '000')) EXECUTE FUNCTION video.refuse()`,
	} {
		pgtest.Exec(t, admin, sql)
	}
	_, stderr := b.run(t, 1, "outbox retry --all --why fixed")
	if n := count(t, b.video, `SELECT count(*) FROM outbox WHERE parked_at IS NULL`); n != 500 || !strings.Contains(stderr, "after 500 events") {
		t.Errorf("%d are free, and it says %s", n, stderr)
	}
}

// A skip that fails may have been committed, because the answer may be lost. It says how to find out.
func TestOutboxSkipThatFailsSaysWhereToLook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.append(t, "a", 1)[0]
	b.park(t, id, "no field 7")
	for _, sql := range []string{
		`UPDATE video.outbox SET parked_at = now() - interval '1 hour'`,
		`CREATE FUNCTION video.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE SQLSTATE '57P01'; END $$`,
		`CREATE TRIGGER refuse BEFORE UPDATE ON video.outbox FOR EACH ROW EXECUTE FUNCTION video.refuse()`,
	} {
		pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), sql)
	}
	if _, stderr := b.run(t, 1, "outbox skip "+id.String()+" --yes --why twice"); !strings.Contains(stderr, "`outbox show "+id.String()+"` says whether") {
		t.Errorf("it says %s", stderr)
	}
}

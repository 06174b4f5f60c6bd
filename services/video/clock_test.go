package video

import (
	"testing"

	"example.com/lockstep/internal/pgtest"
)

// An instance has a clock that is behind the database's. The time of a version is not before the time at which the
// database locked the row. So an answer of the database from before the version is not later than the version, and
// does not pass for an owner that has lost it (inbox.Adopt). A function of the schema stands for the database's clock.
func TestTimesAreNotBehindTheDatabase(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	changed, deleted := a.create(), a.create()
	pgtest.Exec(t, a.admin, `
		CREATE FUNCTION video.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
		AS 'SELECT pg_catalog.clock_timestamp() + interval ''10 min''';
		DO $$ BEGIN
		  EXECUTE format('ALTER ROLE video_service IN DATABASE %I SET search_path = video, pg_catalog', current_database());
		END $$`)
	a.db.Reset() // further sessions have the setting
	a.call("PATCH", path(changed), `{"title": "second"}`)
	a.call("DELETE", path(deleted), nil)
	behind := pgtest.Value[int](t, a.admin, `
		SELECT count(*) FILTER (WHERE occurred_at < clock_timestamp() + interval '9 min') + abs(2 - count(*)) FROM video.outbox WHERE version = 2`)
	if behind != 0 {
		t.Errorf("%d of 2 second versions are missing, or behind the database's clock", behind)
	}
}

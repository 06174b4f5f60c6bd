package services_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// recordVersions makes the database record every version of the projections, in the
// transaction that writes it: the states that a reader could have seen, and none that was
// rolled back.
func (w *world) recordVersions(t testing.TB) {
	t.Helper()
	w.exec(t, `
		CREATE TABLE projection_versions (place bigint GENERATED ALWAYS AS IDENTITY, id text, epoch bigint, version bigint, event text,
			deleted boolean, at timestamptz DEFAULT clock_timestamp());
		CREATE FUNCTION record_version() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			INSERT INTO public.projection_versions (id, epoch, version, event, deleted) VALUES (concat_ws(':', to_jsonb(NEW)->>'user_id', NEW.video_id),
				NEW.epoch, NEW.version, to_jsonb(NEW)->>'last_event_id', NEW.deleted_at IS NOT NULL);
			RETURN NULL;
		END $$;
		CREATE TRIGGER record_version AFTER INSERT OR UPDATE ON catalog.video_projection
			FOR EACH ROW EXECUTE FUNCTION record_version()`)
	w.exec(t, recordEngagements)
}

// lived returns the versions that a projection has had of one id, in order.
func (w *world) lived(t testing.TB, id string) []int64 {
	t.Helper()
	return query[int64](t, w, `SELECT version FROM projection_versions WHERE id = $1 ORDER BY place`, id)
}

// livedExactly fails the test unless these were the projection's versions.
func (w *world) livedExactly(t testing.TB, id string, want ...int64) {
	t.Helper()
	if got := w.lived(t, id); !slices.Equal(got, want) {
		t.Errorf("the projection of %s went through versions %v, want %v", id, got, want)
	}
}

// inbox counts catalog's inbox rows of an aggregate in a status.
func (w *world) inbox(t testing.TB, id, status string) int64 {
	t.Helper()
	return query[int64](t, w, `SELECT count(*) FROM catalog.inbox WHERE aggregate_id = $1 AND status = $2`, id, status)[0]
}

// events returns the events of aggregates from the outbox, in version order. It reads the
// whole outbox once.
func (w *world) events(t testing.TB, ids ...string) []eventing.Event {
	t.Helper()
	rows, err := w.db.Query(t.Context(), `
		SELECT id, coalesce(previous_event_id, '00000000-0000-0000-0000-000000000000'), aggregate_type, aggregate_id, event_type, version, schema_version,
		       payload, occurred_at, tenant_id, epoch, traceparent, -- as the struct has them
		       coalesce(source_event_id, '00000000-0000-0000-0000-000000000000')
		  FROM video.outbox WHERE aggregate_id = ANY ($1) ORDER BY aggregate_id, version`, ids)
	if err != nil {
		t.Fatal(err)
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[eventing.Event])
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func (w *world) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, w.db, sql, args...)
}

// query returns the one column that sql selects.
func query[T any](t testing.TB, w *world, sql string, args ...any) []T {
	t.Helper()
	rows, err := w.db.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return values
}

// livedForward fails the test unless the projection only moved forward, up to last.
func (w *world) livedForward(t testing.TB, id string, last int64) {
	t.Helper()
	lived := w.lived(t, id)
	distinct := slices.Compact(slices.Sorted(slices.Values(lived)))
	if !slices.Equal(lived, distinct) || len(lived) == 0 || lived[len(lived)-1] != last {
		t.Errorf("the projection of %s went through versions %v, want upwards to %d", id, lived, last)
	}
}

package services_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/pkg/eventing"
)

// written are the events that the owner has committed, each aggregate's in the
// order of its versions.
func written(t testing.TB, owner *pgxpool.Pool) []history.Record {
	t.Helper()
	return recorded(t, owner, history.Record{Kind: history.Write, Process: "video"}, `
		SELECT aggregate_id, epoch, version, id::text, occurred_at, '', false FROM video.outbox ORDER BY aggregate_id, epoch, version`)
}

// marked are the events that the relay has marked as published: the remaining evidence
// where the broker loses messages.
func marked(t testing.TB, owner *pgxpool.Pool) []history.Record {
	t.Helper()
	return recorded(t, owner, history.Record{Kind: history.Publish, Process: "video"}, `
		SELECT aggregate_id, epoch, version, id::text, published_at, '', false
		  FROM video.outbox WHERE published_at IS NOT NULL ORDER BY published_at, aggregate_id, version`)
}

// orphans are the unpublished events at the time of a relay's kill, each with its
// lease; the oldest event of its video carries that lease.
func orphans(t testing.TB, owner *pgxpool.Pool, at time.Time) []history.Record {
	t.Helper()
	return recorded(t, owner, history.Record{Kind: history.Orphan, Process: "video"}, `
		SELECT aggregate_id, epoch, version, id::text, $1::timestamptz,
		       coalesce(first_value(lock_token) OVER (PARTITION BY aggregate_type, aggregate_id ORDER BY version), ''), false
		  FROM video.outbox
		 WHERE published_at IS NULL`, at)
}

// content is a video as either service keeps it; a tombstone has none.
const content = `CASE WHEN deleted_at IS NULL
	THEN jsonb_build_array(uploader_id, title, description, duration_seconds, published_at)::text ELSE 'deleted' END`

// owned are the videos as the owner has them.
func owned(t testing.TB, owner *pgxpool.Pool) []history.Record {
	t.Helper()
	return recorded(t, owner, history.Record{Kind: history.Owner, Process: "video"}, `
		SELECT video_id::text, $1::bigint, version, '', now(), `+content+`, deleted_at IS NOT NULL FROM video.videos`, eventing.FirstEpoch)
}

// copied are the videos as the projection has them.
func (w *world) copied(t testing.TB) []history.Record {
	t.Helper()
	return recorded(t, w.db, history.Record{Kind: history.Copy, Process: "catalog"}, `
		SELECT video_id::text, epoch, version, '', applied_at, `+content+`, deleted_at IS NOT NULL FROM catalog.video_projection`)
}

// applied are the versions that the projection of each video has had, by the records of the database.
func (w *world) applied(t testing.TB) []history.Record {
	t.Helper()
	return recorded(t, w.db, history.Record{Kind: history.Apply, Process: "catalog"}, `
		SELECT id, epoch, version, coalesce(event, ''), at, '', deleted FROM projection_versions WHERE id NOT LIKE '%:%' ORDER BY place`)
}

// delivered are the events of videos that catalog's inbox knows, and those that it
// has settled.
func (w *world) delivered(t testing.TB) []history.Record {
	t.Helper()
	const rows = `SELECT aggregate_id, $1::bigint, version, event_id::text, received_at, '', false FROM catalog.inbox WHERE aggregate_type = 'video'`
	return append(
		recorded(t, w.db, history.Record{Kind: history.Deliver, Process: "catalog"}, rows, eventing.FirstEpoch),
		recorded(t, w.db, history.Record{Kind: history.Effect, Process: "catalog"}, rows+` AND status = 'done'`, eventing.FirstEpoch)...)
}

// recorded are records like one of them. Their query selects aggregate, epoch,
// version, event, time, lease or state, and whether there is a tombstone.
func recorded(t testing.TB, db *pgxpool.Pool, like history.Record, sql string, args ...any) []history.Record {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (history.Record, error) {
		r, text, deleted := like, &like.State, false
		if like.Kind == history.Orphan {
			text = &like.Lease
		}
		err := row.Scan(&r.Aggregate, &r.Epoch, &r.Version, &r.Event, &r.At, text, &deleted)
		r.State, r.Lease = like.State, like.Lease
		if deleted && like.Kind == history.Apply {
			r.Change = history.Deleted
		}
		return r, err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return records
}

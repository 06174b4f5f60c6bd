package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/tenant"
)

// countTimeout bounds a count in this process and in the database. It is enough for some millions
// of engagements with one video, and shorter than checkLease.
const countTimeout = time.Minute

// Counters are sums over those engagements with a video that the projection has. The owner of the
// video has no counters. Each statement that changes engagements makes the database change the
// counters by f(new row) − f(old row); migration 01002 has the rule. The database does so even
// while the video is deleted, because a later epoch may bring the video back.
type Counters struct {
	LikeCount           int64 `json:"like_count"`
	BookmarkCount       int64 `json:"bookmark_count"`
	TotalWatchedSeconds int64 `json:"total_watched_seconds"`
}

// readCounters reads the counters of a video from catalog's database. Get calls readCounters if the
// video itself comes from the owner, because the owner has no counters.
func readCounters(ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, id uuid.UUID) (Counters, error) {
	v, err := readCounted(ctx, db, scope, `SELECT $1::uuid AS video_id`, id)
	return v.Counters, err
}

// withCounters adds counters to a statement that returns videos. It reads the counters only for the
// videos that the statement returns. A sum of seconds that is out of range becomes the nearest
// number in range.
func withCounters(videos string) string {
	//nolint:unqueryvet // the statement inside names its columns
	return fmt.Sprintf(`
		SELECT shown.*, like_count, bookmark_count, total_watched_seconds FROM (%s) AS shown CROSS JOIN LATERAL (
		SELECT coalesce(sum(likes), 0)::bigint AS like_count, coalesce(sum(bookmarks), 0)::bigint AS bookmark_count,
		       greatest(least(coalesce(sum(watched_seconds), 0), 9223372036854775807), -9223372036854775808)::bigint AS total_watched_seconds
		  FROM video_counters AS c WHERE c.video_id = shown.video_id) AS counters`, videos)
}

// counters is the reconcile.Counters of a check. It has the counters of the videos in db.
type counters struct{ db *pgxpool.Pool }

// Type is the name of the table.
func (counters) Type() string { return "video_counters" }

// Estimate estimates the number of counted videos from the planner's statistics. A video has up to
// four rows of counters, and most videos have two. So the estimate is half of the rows.
func (c counters) Estimate(ctx context.Context) (rows int64, err error) {
	err = bounded.Pool{DB: c.db, Limit: countTimeout}.Statement("estimate counters",
		`SELECT greatest(reltuples, 0)::bigint / 2 FROM pg_class WHERE oid = 'video_counters'::regclass`).Scan(ctx, &rows)
	return rows, err
}

const wrongCounters = `
	SELECT video_id::text FROM video_counter_drift WHERE video_id >= $1::text::uuid AND video_id < $2::text::uuid ORDER BY video_id`

// Count reads the view of wrong counters for a range of videos. A video with more than
// reconcile.PartRows engagements is a range by itself. If the count of a range with one video takes
// too long, the result says that the video is uncounted.
func (c counters) Count(ctx context.Context, in reconcile.Range) (part reconcile.Counted, err error) {
	if part.Until, err = c.until(ctx, in); err != nil {
		return part, err
	}
	err = c.limited(ctx, pgx.ReadOnly, func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			SELECT count(DISTINCT video_id) FROM video_counters WHERE video_id >= $1::text::uuid AND video_id < $2::text::uuid`,
			in.From, part.Until).Scan(&part.Rows)
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, wrongCounters, in.From, part.Until)
		part.Wrong, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	const queryCanceled = "57014"
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == queryCanceled && part.Until == reconcile.Only(in.From).Until {
		return reconcile.Counted{Until: part.Until, Uncounted: 1}, nil
	}
	if err != nil {
		return part, fmt.Errorf("count rows: %w", err)
	}
	return part, nil
}

// until returns the end of a range that begins at in.From. The range has up to about PartRows
// engagements, and up to about PartRows rows of counters. It has at least one video.
func (c counters) until(ctx context.Context, in reconcile.Range) (until string, err error) {
	err = c.limited(ctx, pgx.ReadOnly, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, boundOfCount, in.From, in.Until, reconcile.PartRows).Scan(&until)
	})
	if err != nil {
		return "", fmt.Errorf("bound a count: %w", err)
	}
	return max(until, reconcile.Only(in.From).Until), nil
}

// Recount adds to the counters the amounts that they lack. It records these amounts in the audit
// table. Recount and batches of events do not wait for each other, except for a row of counters
// whose tenant Recount corrects.
func (c counters) Recount(ctx context.Context, by audit.Actor, ids []string) (wrong []string, err error) {
	err = c.limited(ctx, pgx.ReadWrite, func(ctx context.Context, tx pgx.Tx) error {
		var subjects []audit.Subject
		rows, _ := tx.Query(ctx, `
			SELECT recounted::text, json_build_object('added', added)::text FROM recount_videos($1::uuid[]) ORDER BY 1`, ids)
		var added string
		s := audit.Subject{AggregateType: c.Type()}
		_, err := pgx.ForEachRow(rows, []any{&s.AggregateID, &added}, func() error {
			s.Record = json.RawMessage(added)
			subjects, wrong = append(subjects, s), append(wrong, s.AggregateID)
			return nil
		})
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, "reconcile", by, subjects...)
	})
	if err != nil {
		return nil, fmt.Errorf("recount rows: %w", err)
	}
	return wrong, nil
}

// limited runs a transaction within countTimeout.
func (c counters) limited(ctx context.Context, mode pgx.TxAccessMode, f func(context.Context, pgx.Tx) error) error {
	const toAnswer = 5 * time.Second // so that the error is the database's, which says why
	ctx, cancel := context.WithTimeout(ctx, countTimeout+toAnswer)
	defer cancel()
	return pgx.BeginTxFunc(ctx, c.db, pgx.TxOptions{AccessMode: mode}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true)`, strconv.FormatInt(countTimeout.Milliseconds(), 10))
		if err != nil {
			return err
		}
		return f(ctx, tx)
	})
}

// boundOfCount selects the id at which a part of a count ends: the end $2 of the range, or the video
// behind the first $3 engagements or rows of counters, whichever comes first.
const boundOfCount = `
	SELECT least($2::text::uuid,
	  (SELECT video_id FROM video_user_engagements_projection WHERE video_id >= $1::text::uuid ORDER BY video_id OFFSET $3 LIMIT 1),
	  (SELECT video_id FROM video_counters WHERE video_id >= $1::text::uuid ORDER BY video_id OFFSET $3 LIMIT 1))::text`

// recountVideos adds to the counters the amounts that they lack after a rebuild has exchanged the
// table of engagements.
const recountVideos = `SELECT recount_videos()`

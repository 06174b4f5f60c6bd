package queue

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// PurgePages is how many pages of the table one Purge reads: a few thousand
// rows at most.
const PurgePages = 128

// NextPurgeRange takes the next pages of the table for the caller to purge, from first on.
// No other relay gets them. due is false while another relay is taking pages, and if the last
// pages of a pass were taken less than the duration every ago.
//
// The relays of an outbox share one pass over its table in this way, and a pass continues
// where the last of them ended. A row is written for each range, not for each Purge: while
// a long-running transaction keeps its dead versions, they are few. If a relay dies, the
// rest of its range waits for the next pass.
func (q Queue) NextPurgeRange(ctx context.Context, every time.Duration, pages int) (first int, due bool, err error) {
	err = q.quick("find what to purge", `
		WITH mine AS MATERIALIZED (
			SELECT next_page,
			       pg_relation_size('outbox') <= (next_page + $2) * current_setting('block_size')::bigint AS last
			  FROM outbox_retention
			 WHERE next_page > 0 OR passed_at <= now() - $1::interval OR passed_at > now()
			   FOR UPDATE SKIP LOCKED
		), taken AS (
			UPDATE outbox_retention r
			   SET next_page = CASE WHEN m.last THEN 0 ELSE m.next_page + $2 END,
			       passed_at = CASE WHEN m.last THEN now() ELSE r.passed_at END
			  FROM mine m
		)
		SELECT next_page FROM mine`, every, pages).Scan(ctx, &first)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return first, err == nil, err
}

// Purge deletes events that were published more than retention ago from the pages of the
// table that begin at page, in a transaction of its own. more says that there are pages
// behind them.
//
// The newest event of an aggregate stays, without its payload: by it Append knows which
// version is the next.
//
// Purge goes by the table's pages because that needs no index. An index on published_at
// would cost every event another entry, and its lower end would be dead whenever a long
// transaction holds vacuum up.
func (q Queue) Purge(ctx context.Context, retention time.Duration, page int) (deleted int64, more bool, err error) {
	err = q.quick("purge published events", `
		WITH old AS MATERIALIZED (
			SELECT o.ctid AS place,
			       EXISTS (SELECT FROM outbox n
			                WHERE n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.version > o.version) AS followed
			  FROM outbox o
			 WHERE o.ctid >= format('(%s,0)', $1::int)::tid AND o.ctid < format('(%s,0)', $2::int)::tid
			   AND o.published_at < now() - $3::interval
			   FOR UPDATE OF o SKIP LOCKED
		), gone AS (
			DELETE FROM outbox WHERE ctid = ANY(ARRAY(SELECT place FROM old WHERE followed))
			RETURNING 1
		), emptied AS (
			UPDATE outbox SET payload = '' WHERE ctid = ANY(ARRAY(SELECT place FROM old WHERE NOT followed)) AND payload <> ''
		)
		SELECT (SELECT count(*) FROM gone),
		       pg_relation_size('outbox') > $2::bigint * current_setting('block_size')::int`,
		page, page+PurgePages, retention).Scan(ctx, &deleted, &more)
	return deleted, more, err
}

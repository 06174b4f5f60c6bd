package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PurgePages is how many pages of the table one Purge reads: a few thousand
// rows at most.
const PurgePages = 128

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
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	err = q.db.QueryRow(ctx, `
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
		pgx.QueryExecModeCacheDescribe, page, page+PurgePages, retention).Scan(&deleted, &more)
	if err != nil {
		return 0, false, fmt.Errorf("purge published events: %w", err)
	}
	return deleted, more, nil
}

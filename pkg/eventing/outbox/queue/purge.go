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

// Purge deletes what was published more than retention ago from the pages of
// the table that begin at page, in a transaction of its own. more says that
// there are pages behind them.
//
// It goes by the table's pages because no index is needed for that: one on
// published_at would cost every event another entry, and the lower end of it
// would be dead whenever a long transaction holds vacuum up.
func (q Queue) Purge(ctx context.Context, retention time.Duration, page int) (deleted int64, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	err = q.db.QueryRow(ctx, `
		WITH gone AS (
			DELETE FROM outbox
			 WHERE ctid = ANY(ARRAY(
			       SELECT ctid FROM outbox
			        WHERE ctid >= format('(%s,0)', $1::int)::tid AND ctid < format('(%s,0)', $2::int)::tid
			          AND published_at < now() - $3::interval
			          FOR UPDATE SKIP LOCKED))
			RETURNING 1)
		SELECT (SELECT count(*) FROM gone),
		       pg_relation_size('outbox') > $2::bigint * current_setting('block_size')::int`,
		pgx.QueryExecModeCacheDescribe, page, page+PurgePages, retention).Scan(&deleted, &more)
	if err != nil {
		return 0, false, fmt.Errorf("purge published events: %w", err)
	}
	return deleted, more, nil
}

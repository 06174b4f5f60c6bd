package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// NextPurgeRange takes the next pages of the table for the caller to purge, from first on.
// No other relay gets them. due is false while another relay is taking pages, and until
// every has passed since the last pages of a pass were taken.
//
// The relays of an outbox share one pass over its table in this way, and a pass continues
// where the last of them ended. A row is written for each range, not for each Purge: while
// a long-running transaction keeps its dead versions, they are few. If a relay dies, the
// rest of its range waits for the next pass.
func (q Queue) NextPurgeRange(ctx context.Context, every time.Duration, pages int) (first int, due bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	err = q.db.QueryRow(ctx, `
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
		SELECT next_page FROM mine`,
		pgx.QueryExecModeCacheDescribe, every, pages).Scan(&first)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("find what to purge: %w", err)
	}
	return first, true, nil
}

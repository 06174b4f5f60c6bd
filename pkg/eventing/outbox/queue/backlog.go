package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Backlog is how the outbox stands. Counting stops at Counted.
type Backlog struct {
	Pending, Parked int64
	// Oldest is the age of the oldest event that is neither published, parked
	// nor waiting behind a parked one; zero when there is none. Of more than Counted
	// pending events it is that of the first ones.
	Oldest time.Duration
}

// Counted is how far Backlog counts.
const CountLimit = 10_000

// Backlog reads how the outbox stands. Its cost is that of all that was written since
// the relays last finished with everything, and of the dead entries among it: it is
// read beside the claims, and may fail by its time limit while they do not.
func (q Queue) Backlog(ctx context.Context) (Backlog, error) {
	ctx, cancel := context.WithTimeout(ctx, ScanTimeout)
	defer cancel()
	var b Backlog
	err := q.db.QueryRow(ctx, backlog, pgx.QueryExecModeCacheDescribe, CountLimit).Scan(&b.Pending, &b.Parked, &b.Oldest)
	if err != nil {
		return Backlog{}, fmt.Errorf("read backlog: %w", err)
	}
	return b, nil
}

const backlog = `
WITH parked AS MATERIALIZED (
	SELECT aggregate_type, aggregate_id, min(version) AS version
	  FROM outbox
	 WHERE parked_at IS NOT NULL AND published_at IS NULL
	 GROUP BY 1, 2
), sendable AS MATERIALIZED (
	SELECT o.occurred_at
	  FROM outbox_pending o
	 WHERE NOT EXISTS (SELECT FROM parked p
	                    WHERE p.aggregate_type = o.aggregate_type AND p.aggregate_id = o.aggregate_id AND p.version <= o.version)
	 LIMIT $1
)
SELECT (SELECT count(*) FROM (SELECT FROM outbox_pending LIMIT $1) p),
       (SELECT count(*) FROM (SELECT FROM outbox WHERE parked_at IS NOT NULL AND published_at IS NULL LIMIT $1) p),
       coalesce((SELECT greatest(now() - min(occurred_at), interval '0') FROM sendable), interval '0')`

package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Backlog is the state of the outbox. Counting stops at CountLimit.
type Backlog struct {
	Pending, Parked int64
	// Oldest is the age of the oldest event that is neither published, parked nor waiting
	// behind a parked one; zero when there is none. If more than CountLimit events are
	// pending, it is that of the first ones.
	Oldest time.Duration
}

// CountLimit is how far Backlog counts.
const CountLimit = 10_000

// Backlog reads the state of the outbox. Its cost is that of everything written since the
// relays last finished all their work, and of the dead entries among it. So it is read
// apart from the claims, and may run into its time limit while they do not.
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

package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Backlog is how the outbox stands. What it costs to know does not grow with
// the table or the backlog: counting stops at Counted, and the oldest event is
// looked for at the heads of the first Looked aggregates with pending events.
type Backlog struct {
	Pending, Parked int64
	// Oldest is the age of the oldest event that is neither published, parked
	// nor waiting behind a parked one; zero when there is none.
	Oldest time.Duration
}

// How far Backlog looks.
const (
	Counted = 10_000
	Looked  = 1_000
)

// Backlog reads how the outbox stands.
func (q Queue) Backlog(ctx context.Context) (Backlog, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var b Backlog
	err := q.db.QueryRow(ctx, backlog, pgx.QueryExecModeCacheDescribe, Counted, Looked).Scan(&b.Pending, &b.Parked, &b.Oldest)
	if err != nil {
		return Backlog{}, fmt.Errorf("read backlog: %w", err)
	}
	return b, nil
}

var backlog = `
WITH RECURSIVE walk AS (
	(` + fmt.Sprintf(step, `true`) + `)
	UNION ALL` + fmt.Sprintf(onward, fmt.Sprintf(step,
	`(o.aggregate_type COLLATE "C", o.aggregate_id COLLATE "C") > (w.aggregate_type, w.aggregate_id)`)) + `
)
SELECT (SELECT count(*) FROM (SELECT FROM outbox WHERE published_at IS NULL AND version > 0 ORDER BY xact LIMIT $1) p),
       (SELECT count(*) FROM (SELECT FROM outbox WHERE parked_at IS NOT NULL AND published_at IS NULL LIMIT $1) p),
       coalesce((SELECT greatest(now() - min(o.occurred_at), interval '0')
                   FROM (SELECT aggregate_type, aggregate_id, version FROM walk LIMIT $2) w
                   JOIN outbox o USING (aggregate_type, aggregate_id, version)
                  WHERE o.parked_at IS NULL), interval '0')`

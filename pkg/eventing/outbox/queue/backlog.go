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
	// behind a parked one, and of none of the tenants that were left out; zero when there is
	// none. If more than CountLimit such events are pending, it is that of the first ones.
	Oldest time.Duration
}

// TenantBacklog is a tenant's part of the first CountLimit pending events.
type TenantBacklog struct {
	Tenant          string
	Pending, Parked int64
	// Oldest is the age of the oldest of them that is not parked; zero if there is none.
	Oldest time.Duration
}

const (
	// CountLimit is how far Backlog counts.
	CountLimit = 10_000
	// maxTenantsCounted bounds the answer of Backlog.
	maxTenantsCounted = 256
)

// Backlog reads the state of the outbox, and of its tenants, those with the most pending
// events first. Backlog.Oldest leaves out the given tenants. Its cost is that of everything written since the
// relays last finished all their work, and of the dead entries among it. So it is read
// apart from the claims, and may run into its time limit while they do not.
func (q Queue) Backlog(ctx context.Context, without ...string) (b Backlog, tenants []TenantBacklog, err error) {
	ctx, cancel := context.WithTimeout(ctx, ScanTimeout)
	defer cancel()
	rows, _ := q.db.Query(ctx, backlog, pgx.QueryExecModeCacheDescribe, CountLimit, maxTenantsCounted, asWritten(without...))
	var tenant *string
	var t TenantBacklog
	_, err = pgx.ForEachRow(rows, []any{&b.Pending, &b.Parked, &b.Oldest, &tenant, &t.Pending, &t.Parked, &t.Oldest}, func() error {
		if tenant != nil {
			t.Tenant = *tenant
			tenants = append(tenants, t)
		}
		return nil
	})
	if err != nil {
		return Backlog{}, nil, fmt.Errorf("read backlog: %w", err)
	}
	return b, tenants, nil
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
	 WHERE o.tenant_id <> ALL($3)
	   AND NOT EXISTS (SELECT FROM parked p
	                    WHERE p.aggregate_type = o.aggregate_type AND p.aggregate_id = o.aggregate_id AND p.version <= o.version)
	 LIMIT $1
), pending AS MATERIALIZED (
	SELECT CASE o.tenant_id WHEN '' THEN 'default' ELSE o.tenant_id END AS tenant, o.occurred_at, o.parked_at
	  FROM outbox_pending o
	 LIMIT $1
), tenants AS (
	SELECT p.tenant, count(*) AS pending, count(p.parked_at) AS parked, min(p.occurred_at) FILTER (WHERE p.parked_at IS NULL) AS oldest
	  FROM pending p
	 GROUP BY 1
	 ORDER BY 2 DESC, 1
	 LIMIT $2
), total AS (
	SELECT (SELECT count(*) FROM pending) AS pending,
	       (SELECT count(*) FROM (SELECT FROM outbox WHERE parked_at IS NOT NULL AND published_at IS NULL LIMIT $1) p) AS parked,
	       (SELECT min(occurred_at) FROM sendable) AS oldest
)
SELECT a.pending, a.parked, coalesce(greatest(now() - a.oldest, interval '0'), interval '0'),
       t.tenant, coalesce(t.pending, 0), coalesce(t.parked, 0), coalesce(greatest(now() - t.oldest, interval '0'), interval '0')
  FROM total a
  LEFT JOIN tenants t ON true
 ORDER BY 5 DESC, 4`

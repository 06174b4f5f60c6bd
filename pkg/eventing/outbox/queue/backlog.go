package queue

import (
	"context"
	_ "embed"
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

//go:embed backlog.sql
var backlog string

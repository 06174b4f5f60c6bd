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
	// Oldest is the age of the oldest event that is neither published nor parked nor waiting behind
	// a parked one, or zero if there is none. Events of the tenants that the caller of
	// [Queue.Backlog] leaves out do not count. If more than CountLimit events count, Oldest covers
	// only the CountLimit events that were found first.
	Oldest time.Duration
}

// TenantBacklog is a tenant's part of the first CountLimit pending events.
type TenantBacklog struct {
	Tenant          string
	Pending, Parked int64
	// Oldest is the age of the oldest event that Pending counts and that is not parked, or zero
	// if there is no such event.
	Oldest time.Duration
}

const (
	// CountLimit is the number of events at which Backlog stops counting.
	CountLimit = 10_000
	// maxTenantsCounted is how many tenants Backlog returns at most.
	maxTenantsCounted = 256
)

// Backlog reads the state of the outbox and of its tenants. The tenants with the most pending
// events come first. The field Oldest of b does not include the tenants in without. Backlog reads
// all rows that were written since the relays last finished all their work, including dead entries.
// So Backlog runs apart from the claims. It may run out of time when claims do not.
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

package queue

import (
	"context"
	_ "embed"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Backlog is the state of the outbox. Counting stops at CountLimit.
type Backlog struct {
	Pending, Parked int64
	// Oldest is the age of the oldest event that is neither published nor parked nor waiting behind
	// a parked one, or zero if there is none. Events of the tenants that the caller of
	// [Queue.Backlog] leaves out do not count. Oldest covers only the rows that were read.
	Oldest time.Duration
	// Next is where the search for Oldest continues. It is the zero Cursor if the search has ended,
	// because an event was found or because no row is left.
	Next Cursor
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
// events come first. The field Oldest of b does not include the tenants in without.
//
// Each call reads the first CountLimit pending events, in the order of their transactions. There
// may be a million events of the tenants in without before the first event that counts for Oldest.
// So a call also reads CountLimit rows from the cursor from on, and b.Next is the cursor for the
// next call. The first call passes the zero Cursor.
//
// Backlog reads all dead entries among these rows. So it runs apart from the claims. It may run
// out of time when claims do not.
func (q Queue) Backlog(ctx context.Context, from Cursor, without ...string) (b Backlog, tenants []TenantBacklog, err error) {
	ctx, cancel := context.WithTimeout(ctx, ScanTimeout)
	defer cancel()
	var start *string
	if from != (Cursor{}) {
		start = &from.xact
	}
	args := []any{CountLimit, maxTenantsCounted, asWritten(without...), start, from.id}
	var found bool
	var low string
	var read int
	var last, tenant *string
	var id *uuid.UUID
	var t TenantBacklog
	to := []any{&b.Pending, &b.Parked, &b.Oldest, &found, &low, &read, &last, &id, &tenant, &t.Pending, &t.Parked, &t.Oldest}
	err = q.query(ctx, countedPlan, backlog, args, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, to, func() error {
			if tenant != nil {
				t.Tenant = *tenant
				tenants = append(tenants, t)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return Backlog{}, nil, fmt.Errorf("read backlog: %w", err)
	}
	switch {
	case found:
	case read == CountLimit:
		b.Next = Cursor{xact: *last, id: *id}
	case from == (Cursor{}) && b.Pending == CountLimit:
		b.Next = cursor(number(low), math.MaxUint64)
	}
	return b, tenants, nil
}

// countedPlan is a statement that sets up the planner for the next statement. A plan that the
// session keeps may be from a time when the table was empty, and would read all of the full table. A
// scan by a bitmap would find all pending events before it counts the first.
const countedPlan = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_bitmapscan', 'off', true)`

//go:embed backlog.sql
var backlog string

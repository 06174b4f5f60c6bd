package queue

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Backlog is the state of the outbox. Counting stops at CountLimit.
type Backlog struct {
	Pending, Parked int64
	// Oldest is the age of the oldest event that is neither published nor parked nor waiting behind
	// a parked one, or zero if there is none. Events of the tenants that the caller of
	// [Queue.Backlog] leaves out do not count. If CountLimit events or more are pending, Oldest
	// covers the events that the search has read so far.
	Oldest time.Duration
	// Search is the state of the search for the oldest event.
	Search OldestSearch
}

// OldestSearch is the state of the search for the oldest event, from one call of [Queue.Backlog] to
// the next. The zero value is the start of a search.
type OldestSearch struct {
	parts []Cursor    // the parts of the table that are not read yet; if empty, the next call begins a search
	found []uuid.UUID // the oldest events that were found, maxFound at most
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
	// maxFound is how many of the oldest events a search keeps at most. When the oldest of them is
	// published, the next oldest counts at once, although the search read its row long ago.
	maxFound = 100
)

// Backlog reads the state of the outbox and of its tenants. The tenants with the most pending
// events come first. The field Oldest of b does not include the tenants in without.
//
// A call reads the first CountLimit pending events, in the order of their transactions. There may be
// a million events of the tenants in without before the first event that counts for Oldest. So a
// call also reads CountLimit rows where the search s has got to, and passes the search on as
// b.Search. A search reads the rows that the earliest low of the relays (see "Where to look" in the
// package doc) did not see, without those of transactions that began after the search. Then it begins
// again, and so finds the events that were committed behind it. It does not find rows that were
// restored from another cluster while the ids of their transactions are above all ids of this cluster.
// The oldest events that the search has found count for as long as they are pending.
//
// Backlog also reads the published rows and the dead entries that lie between the pending events.
// There are many after an outage. So Backlog runs apart from the claims. It may run out of time when
// claims do not.
func (q Queue) Backlog(ctx context.Context, s OldestSearch, without ...string) (b Backlog, tenants []TenantBacklog, err error) {
	ctx, cancel := context.WithTimeout(ctx, ScanTimeout)
	defer cancel()
	from, ids, until := partColumns(s.parts)
	args := []any{CountLimit, maxTenantsCounted, asWritten(without...), from, ids, until, s.found, maxFound}
	var low, seen TxSnapshot
	var read, part int
	var last Cursor
	var lastID *uuid.UUID
	var tenant *string
	var t TenantBacklog
	to := []any{
		&b.Pending, &b.Parked, &b.Oldest, &b.Search.found, &low, &seen, &read, &part, &last.xact, &lastID,
		&tenant, &t.Pending, &t.Parked, &t.Oldest,
	}
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
	case b.Pending < CountLimit: // all pending events were read
	case len(s.parts) == 0:
		b.Search.parts = low.Until(seen)
	case read == CountLimit:
		last.to, last.id = s.parts[part-1].to, *lastID
		b.Search.parts = low.unseen(append([]Cursor{last}, s.parts[part:]...))
	}
	return b, tenants, nil
}

// partColumns returns the parts as parameters of a statement.
func partColumns(parts []Cursor) (from []string, ids []uuid.UUID, to []string) {
	for _, p := range parts {
		from, ids, to = append(from, p.xact), append(ids, p.id), append(to, p.to)
	}
	return from, ids, to
}

// countedPlan sets up the planner for the next statement. A bitmap scan or a sort would read all pending
// events before it counts the first. A nested loop would compare each event with each parked one, if the
// planner expects few. A plan that the session keeps may be from a time when the table was empty. Postgres 17
// would read the whole table: it adds a cost of 1e10 for a kind of plan that is switched off, and compared with such a
// number the view costs the same with and without the index.
const countedPlan = `
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_nestloop', 'off', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)`

//go:embed backlog.sql
var backlog string

package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
)

// Claim is the name and the limits of a claim.
type Claim struct {
	// Token is the relay's name on its leases.
	Token string
	// Alive are the tokens of the other living relays, which answer for their own leases.
	Alive []string
	// UnknownLeases says that Token may have leases that its relay does not know of.
	UnknownLeases bool
	// Aggregates, Events and PerAggregate are counts, Bytes those of payloads.
	Aggregates, Events, PerAggregate, Bytes int
	// Without are aggregate types to skip.
	Without []string
	// SkipRetries has a Scan skip the events that ClaimRetries finds.
	SkipRetries bool
	// WithoutTenants has ClaimNew and Scan skip the events of these tenants, except those
	// that follow a version in ClaimNew's after.
	WithoutTenants []string
	// Tenant has Scan claim events of this tenant only. Empty means all tenants.
	Tenant string
}

// Claimed is the result of a claim.
type Claimed struct {
	Batches []Batch
	// Seen is the snapshot of the claim.
	Seen TxSnapshot
	// Truncated says that there was more than the limits allow.
	Truncated bool
	// Skipped says that the claim could not take some heads that no living relay answers
	// for: their rows were locked, or leased by a relay that is not alive. FreeIn is when
	// the last of those leases ends; it is zero if there are none.
	Skipped bool
	FreeIn  time.Duration
}

const (
	// newRows is how many new events a claim reads. If there are more, Truncated says so
	// and a scan finds them.
	newRows = 2000
	// retryRows is how many due retries a claim reads.
	retryRows = 1000
	// MaxRetry is longer than any retry is put off. A retry time that is further away was
	// written before the database's clock was set back.
	MaxRetry = 5 * time.Minute
)

// ClaimNew claims the events that were committed since a snapshot, and those that follow
// the versions in after, which this relay has just published. Its cost depends on the
// events that it finds, and on nothing else in the table.
func (q Queue) ClaimNew(ctx context.Context, c Claim, since TxSnapshot, after []AggregateVersion) (Claimed, error) {
	var done versionArrays
	for _, p := range after {
		done.add(p)
	}
	var found int
	got, err := q.claim(ctx, "claim new events", Timeout, claimNewEvents, c,
		[]any{since.orNull(), newRows, done.types, done.ids, done.versions, asWritten(c.WithoutTenants...)}, &found)
	got.Truncated = got.Truncated || found >= newRows
	return got, err
}

// Cursor is the progress of a scan: behind an event of a transaction.
type Cursor struct {
	xact, to string
	id       uuid.UUID
}

// Page is the result of one page of a scan.
type Page struct {
	Claimed
	// Next is where the scan continues. Done says that nothing is left there.
	Next Cursor
	Done bool
}

// Scan claims among the next rows of the table, in the order of the transactions that wrote
// them. It finds the events that ClaimNew cannot: those that a dead relay had leased, and
// those that a claim had to leave. Its cost is that of the rows that it reads, published
// ones included.
func (q Queue) Scan(ctx context.Context, c Claim, from Cursor, rows int) (Page, error) {
	var found int
	var xact *string
	var id *uuid.UUID
	var only []string
	if c.Tenant != "" {
		only = asWritten(c.Tenant)
	}
	got, err := q.claim(ctx, "scan for events", ScanTimeout, claimPage, c,
		[]any{from.xact, from.id, from.to, rows, c.SkipRetries, asWritten(c.WithoutTenants...), only}, &found, &xact, &id)
	if err != nil {
		return Page{}, err
	}
	p := Page{Claimed: got, Next: from, Done: found < rows}
	if xact != nil {
		p.Next.xact, p.Next.id = *xact, *id
	}
	return p, nil
}

// asWritten are the tenants as rows name them: the default tenant's rows have an empty name,
// too. It is never nil, which no row would match.
func asWritten(tenants ...string) []string {
	names := append([]string{}, tenants...)
	if slices.Contains(names, eventing.DefaultTenant) {
		names = append(names, "")
	}
	return names
}

// ClaimRetries claims the events with a retry that is due, the longest due first, and
// returns in how long the next one is; zero if there is none.
func (q Queue) ClaimRetries(ctx context.Context, c Claim) (got Claimed, next time.Duration, err error) {
	var seconds float64
	got, err = q.claim(ctx, "claim retries", ScanTimeout, claimRetries, c, []any{retryRows}, &seconds)
	return got, time.Duration(seconds * float64(time.Second)), err
}

// claim runs a statement that ends like all claims (see isHead), within a time limit. own are
// the arguments that only this statement has, from $10 on. more are the targets of the
// columns that only this statement has, behind those of the report.
func (q Queue) claim(
	ctx context.Context, what string, limit time.Duration, sql string, c Claim, own []any, more ...any,
) (got Claimed, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	without, alive := c.Without, append([]string{}, c.Alive...)
	if without == nil {
		without = []string{}
	}
	if !c.UnknownLeases {
		alive = append(alive, c.Token)
	}
	args := append([]any{c.Token, LeaseTime, without, c.Aggregates, c.Events, c.PerAggregate, c.Bytes, alive, MaxRetry}, own...)
	var heads, passed int
	var until float64
	events, err := q.claimEvents(ctx, sql, args, append([]any{&got.Seen, &heads, &passed, &until}, more...)...)
	if err != nil {
		return Claimed{}, fmt.Errorf("%s: %w", what, err)
	}
	got.Batches = byAggregate(events)
	got.Truncated = heads >= c.Aggregates || heads > len(got.Batches)
	got.Skipped = passed > 0
	got.FreeIn = time.Duration(until * float64(time.Second))
	return got, nil
}

// claimEvents runs the statement of a claim. The first columns of each row, the same in all
// rows, go to report; the others are a claimed event. A claim without events returns one
// row with null in these.
func (q Queue) claimEvents(ctx context.Context, sql string, args []any, report ...any) (events []Event, err error) {
	err = q.query(ctx, genericPlan, sql, args, func(rows pgx.Rows) (err error) {
		events, err = readEvents(rows, report)
		return err
	})
	return events, err
}

func readEvents(rows pgx.Rows, report []any) (events []Event, err error) {
	for rows.Next() {
		var e Event
		var previous uuid.NullUUID
		var retry *time.Time
		to := []any{
			&e.ID, &e.AggregateType, &e.AggregateID, &e.Type, &e.Version, &e.SchemaVersion,
			&e.Payload, &e.OccurredAt, &e.TenantID, &e.Epoch, &e.TraceParent, &e.Rejections, &previous, &retry,
		}
		nothing := rows.RawValues()[len(report)] == nil
		if nothing {
			to = make([]any, len(to)) // which scans none of them
		}
		if err := rows.Scan(append(report, to...)...); err != nil {
			return nil, err
		}
		if !nothing {
			e.OccurredAt, e.PreviousEventID, e.Retry = e.OccurredAt.UTC(), previous.UUID, retry != nil
			events = append(events, e)
		}
	}
	return events, rows.Err()
}

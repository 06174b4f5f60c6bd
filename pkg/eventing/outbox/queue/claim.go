package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/lockstep/pkg/eventing"
)

// Claim has the limits of a claim, and the relay that makes it.
type Claim struct {
	// Token identifies the relay on its leases.
	Token string
	// Server is HeartbeatResult.Server of the relay's last heartbeat. If the server has another life now, the claim
	// fails with ErrAnotherServer. The zero time stands for any life.
	Server time.Time
	// Alive are the tokens of the other living relays. Claimed.Skipped leaves out the heads that these
	// relays have leased, because each relay takes care of its own leases.
	Alive []string
	// Gone are the tokens of relays whose processes have ended (HeartbeatResult.Gone). The claim ignores their leases.
	Gone []string
	// UnknownLeases is true if the table may have leases under Token that the relay does not know of.
	// Then Claimed.Skipped includes the heads with leases under Token.
	UnknownLeases bool
	// Aggregates and Events limit the numbers of aggregates and events of the claim.
	// PerAggregate limits the events of one aggregate. Bytes limits the size of the payloads.
	Aggregates, Events, PerAggregate, Bytes int
	// Without are aggregate types to skip.
	Without []string
	// SkipRetries makes Scan skip the events that ClaimRetries finds.
	SkipRetries bool
	// WithoutTenants makes ClaimNew and Scan skip the events of these tenants. ClaimNew does
	// not skip events that follow a version in its parameter after.
	WithoutTenants []string
	// Tenant makes Scan claim events of this tenant only. Empty means all tenants.
	Tenant string
}

// Claimed is the result of a claim.
type Claimed struct {
	Batches []Batch
	// Seen is the snapshot of the claim.
	Seen TxSnapshot
	// Truncated says that there were more events than the limits allow.
	Truncated bool
	// Skipped is true if the claim could not take some heads (see "Ownership of an aggregate" in the
	// package doc), and no living relay takes care of them. Another session had locked the row of such a
	// head, or a relay that is not alive had leased it.
	Skipped bool
	// FreeIn is the time until the last of the leases on skipped heads ends, or zero if there is no such
	// lease.
	FreeIn time.Duration
}

// ErrAnotherServer is the error of a claim that has found the server in another life than Claim.Server. The claim has
// changed nothing. The relay's row on this server may have a later low than the relay, so the relay writes a heartbeat first.
var ErrAnotherServer = errors.New("the server has been replaced since the relay's last heartbeat")

const (
	// newRows is how many new events a claim reads. If there are more, the claim sets Truncated,
	// and the caller schedules a scan that finds the events that were not read.
	newRows = 2000
	// retryRows is how many due retries a claim reads.
	retryRows = 1000
	// MaxRetry is longer than the longest pause before a retry. A retry time that is further
	// away was written before the database's clock was set back, and counts as due.
	MaxRetry = 5 * time.Minute
)

// ClaimNew claims the events that were committed after the snapshot since, and the events that
// follow the versions in after, which the relay has just published. Its cost depends only on the
// events that it finds, and not on other rows of the table.
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

// Cursor is the progress of a scan in a part of the table. The scan has read all rows up to the
// event with the given id in the transaction xact. The part ends with the rows of the transaction
// in the field to.
type Cursor struct {
	xact, to string
	id       uuid.UUID
}

// Page is the result of one page of a scan.
type Page struct {
	Claimed
	// Next is where the scan continues. Done says that no rows are left there.
	Next Cursor
	Done bool
}

// Scan reads the next rows of the table, in the order of the transactions that wrote them, and
// claims among them. It finds the events that ClaimNew cannot find: events that a dead relay had
// leased, and events that a claim had to skip. Its cost depends on the rows that it reads,
// including published ones.
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

// asWritten returns the names that the rows of these tenants have in the column tenant_id. Rows of
// the default tenant may also have an empty name. The result is never nil, because nil would be
// NULL in SQL, and a comparison with NULL is never true.
func asWritten(tenants ...string) []string {
	names := append([]string{}, tenants...)
	if slices.Contains(names, eventing.DefaultTenant) {
		names = append(names, "")
	}
	return names
}

// ClaimRetries claims the events whose retry is due. It begins with the events that have been due
// for longest. next is the time until the next retry is due, or zero if there is no later retry.
func (q Queue) ClaimRetries(ctx context.Context, c Claim) (got Claimed, next time.Duration, err error) {
	var seconds float64
	got, err = q.claim(ctx, "claim retries", ScanTimeout, claimRetries, c, []any{retryRows}, &seconds)
	return got, time.Duration(seconds * float64(time.Second)), err
}

// claim runs a claiming statement within the time limit. All claiming statements share their last
// part, see "claim candidates" in claim.sql. own has the arguments of this statement alone, from
// $12 on. more has the scan targets of the columns of this statement alone, which follow the
// columns of the report.
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
	var server time.Time
	args := append([]any{
		c.Token, LeaseTime, without, c.Aggregates, c.Events, c.PerAggregate, c.Bytes, alive, MaxRetry, orNull(c.Server),
		append([]string{}, c.Gone...), // a nil slice would be NULL
	}, own...)
	var heads, passed int
	var until float64
	events, err := q.claimEvents(ctx, sql, args, append([]any{&got.Seen, &server, &heads, &passed, &until}, more...)...)
	if err == nil && !c.Server.IsZero() && !server.Equal(c.Server) {
		err = ErrAnotherServer
	}
	if err != nil {
		return Claimed{}, fmt.Errorf("%s: %w", what, err)
	}
	got.Batches = byAggregate(events)
	got.Truncated = heads >= c.Aggregates || heads > len(got.Batches)
	got.Skipped = passed > 0
	got.FreeIn = time.Duration(until * float64(time.Second))
	return got, nil
}

// claimEvents runs the statement of a claim. The first columns of each row are scanned into
// report, and are the same in all rows. The other columns are a claimed event. If a claim has no
// events, the statement returns one row in which the columns of the event are null.
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
		var retry pgtype.Timestamptz // which may be infinite, if a person has written it
		to := []any{
			&e.ID, &e.AggregateType, &e.AggregateID, &e.Type, &e.Version, &e.SchemaVersion,
			&e.Payload, &e.OccurredAt, &e.TenantID, &e.Epoch, &e.TraceParent, &e.Refusals, &previous, &retry,
		}
		nothing := rows.RawValues()[len(report)] == nil
		if nothing {
			to = make([]any, len(to)) // a nil target skips its column
		}
		if err := rows.Scan(append(report, to...)...); err != nil {
			return nil, err
		}
		if !nothing {
			e.OccurredAt, e.PreviousEventID, e.Retry = e.OccurredAt.UTC(), previous.UUID, retry.Valid
			events = append(events, e)
		}
	}
	return events, rows.Err()
}

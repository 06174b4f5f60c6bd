package backlog

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

const (
	// purgeBatch is the most events that Purge reads in one transaction. It keeps the transactions short.
	purgeBatch = 1000
	// forgetBatch is the most events that one statement of Forget deletes or empties. It bounds the locks
	// and the time of the statement.
	forgetBatch = 1000
)

// ErrNotParked is returned for an event that needs no action: a relay handles
// it, or has published it.
var ErrNotParked = errors.New("not parked")

// parked returns the parked event with this id, or ErrUnknown or ErrNotParked.
func (b *Backlog) parked(ctx context.Context, id uuid.UUID) (Event, error) {
	d, err := b.Show(ctx, id)
	switch {
	case err != nil:
		return Event{}, err
	case d.Event == nil:
		return Event{}, fmt.Errorf("%s: %w: it was skipped", id, ErrUnknown)
	case d.Event.State != "parked":
		return Event{}, fmt.Errorf("%s is %s, %w", id, d.Event.State, ErrNotParked)
	}
	return *d.Event, nil
}

// PlanPurge counts the events that Purge would delete.
func (b *Backlog) PlanPurge(ctx context.Context, age time.Duration) (int64, error) {
	return b.eachPage(ctx, age, nil)
}

// Purge deletes events that were published longer than age ago, except the newest published event
// of each aggregate. Only an event that is not published can be removed while Purge runs (see Skip),
// so a newest event always stays. It works in small batches, each in its own
// transaction with an audit entry, and returns the number of deleted events,
// also with an error. If the database is away, Purge tries a batch again for half a minute. If the answer to
// a COMMIT was lost, the number lacks the events of that batch, and the audit entries have them. Purge walks
// the primary key, so it needs no index of its own.
func (b *Backlog) Purge(ctx context.Context, o audit.Actor, age time.Duration) (purged int64, err error) {
	return b.eachPage(ctx, age, &o)
}

// eachPage deletes the old events of all pages, or counts them if o is nil.
func (b *Backlog) eachPage(ctx context.Context, age time.Duration, o *audit.Actor) (old int64, err error) {
	for after := uuid.Nil; ; {
		p, err := bounded.TryAgain(ctx, nil, func() (purgePage, error) { return b.page(ctx, age, o, after) })
		old += p.old
		if err != nil || p.read < purgeBatch {
			return old, err
		}
		after = p.last.UUID
	}
}

//go:embed purge_page.sql
var purgeEvents string

// purgePage is a batch of events that were read: how many, how many of these are old, and the id of the last one.
type purgePage struct {
	read, old int64
	last      uuid.NullUUID
}

// page reads up to purgeBatch events behind the id after, and deletes or counts the old events
// among them.
func (b *Backlog) page(ctx context.Context, age time.Duration, o *audit.Actor, after uuid.UUID) (p purgePage, err error) {
	err = b.db.Tx(ctx, "purge", func(ctx context.Context, tx pgx.Tx) error {
		err := tx.QueryRow(ctx, purgeEvents, after, purgeBatch, age, o != nil).Scan(&p.read, &p.old, &p.last)
		if err != nil || o == nil || p.old == 0 {
			return err
		}
		record, err := json.Marshal(map[string]any{"purged": p.old, "older_than": age.String()})
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, "purge", *o, audit.Subject{Record: record})
	})
	if err != nil {
		return purgePage{}, err
	}
	return p, nil
}

// Contents are numbers of events that still have their payload in the outbox.
type Contents struct {
	Published int64
	// Waiting counts events that are not published, be they pending or parked.
	Waiting int64
}

// Contents counts the events of these aggregates that have a payload.
func (b *Backlog) Contents(ctx context.Context, aggregateType string, ids []string) (c Contents, err error) {
	err = b.db.Statement("count payloads", `
		SELECT count(*) FILTER (WHERE published_at IS NOT NULL), count(*) FILTER (WHERE published_at IS NULL)
		  FROM outbox WHERE aggregate_type = $1 AND aggregate_id = ANY ($2::text[]) AND payload <> ''`, aggregateType, ids).
		Scan(ctx, &c.Published, &c.Waiting)
	return c, err
}

// Forget deletes the published events of these aggregates, whatever their age, except the newest
// published event of each aggregate. It empties that event, because Append needs the row but not the
// payload. waiting is the number of events with a payload that waited to be published when the last
// statement of Forget began, even if they are published by now. Forget does not touch waiting events,
// because consumers could not apply an event without its payload, or one that came after a later event.
func (b *Backlog) Forget(ctx context.Context, aggregateType string, ids []string) (waiting int64, err error) {
	for {
		forgotten, waiting, err := b.forget(ctx, aggregateType, ids)
		if err != nil || forgotten < forgetBatch {
			return waiting, err
		}
	}
}

//go:embed forget.sql
var forgetPayloads string

// forget does the work of Forget for the first forgetBatch events.
func (b *Backlog) forget(ctx context.Context, aggregateType string, ids []string) (forgotten, waiting int64, err error) {
	err = b.db.Statement("forget payloads", forgetPayloads, aggregateType, ids, forgetBatch).Scan(ctx, &forgotten, &waiting)
	return forgotten, waiting, err
}

package backlog

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

// retryBatch is the most events that Retry reads and frees in one transaction.
const retryBatch = 500

// Retried is the result of a Retry.
type Retried struct {
	// Freed counts the events that relays publish again.
	Freed int64 `json:"retried"`
	// Locked counts the events that are still parked, because another session held their rows.
	Locked int64 `json:"locked"`
}

// Retry lets relays publish parked events again, as if they had never been refused. f selects the
// events. Retry works in small batches, each in its own transaction. It waits for no row that
// another session has locked: it counts the row, and continues with the other rows. It does not free an
// event that was parked after Retry began, such as an event that Retry has freed and the broker has refused
// again. If the database is away, Retry tries a batch again for half a minute. If Retry returns an error, the
// result counts the batches before the error.
func (b *Backlog) Retry(ctx context.Context, o audit.Actor, f Filter) (all Retried, err error) {
	last, err := bounded.TryAgain(ctx, nil, func() (last pgtype.Timestamptz, err error) {
		err = b.db.Statement("last parked event", `SELECT max(parked_at) FROM outbox WHERE parked_at IS NOT NULL`).Scan(ctx, &last)
		return last, err
	})
	if err != nil || !last.Valid {
		return all, err
	}
	first := parking{At: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}
	for p := (retryPage{last: last, after: first}); ; p = (retryPage{last: last, after: p.events[len(p.events)-1]}) {
		got, err := bounded.TryAgain(ctx, nil, func() (Retried, error) { return b.retryEach(ctx, o, f, &p) })
		all.Freed, all.Locked = all.Freed+got.Freed, all.Locked+got.Locked
		if err != nil || len(p.events) < retryBatch {
			return all, err
		}
	}
}

// RetryOne is Retry for one event. It returns ErrUnknown or ErrNotParked if there is no parked event to
// retry. If another session has locked the row, RetryOne waits for the row, up to the role's lock_timeout.
// If the database is away, RetryOne tries again for half a minute. If a further attempt finds the event no longer
// parked, RetryOne returns nil: the answer of an earlier attempt was lost, or another operator has freed the event.
func (b *Backlog) RetryOne(ctx context.Context, o audit.Actor, id uuid.UUID) error {
	mayBeFree := false
	_, err := bounded.TryAgain(ctx, func(error) { mayBeFree = true }, func() (struct{}, error) {
		return struct{}{}, b.retryOne(ctx, o, id)
	})
	if mayBeFree && errors.Is(err, ErrNotParked) {
		return nil
	}
	return err
}

func (b *Backlog) retryOne(ctx context.Context, o audit.Actor, id uuid.UUID) error {
	var n int
	err := b.db.Tx(ctx, "retry", func(ctx context.Context, tx pgx.Tx) (err error) {
		n, err = free(ctx, tx, o, []uuid.UUID{id}, "")
		return err
	})
	if err == nil && n == 0 {
		_, err = b.parked(ctx, id)
	}
	return err
}

// parking is the sort key of a parked event in Retry: the time of its parking, then its id. The index
// outbox_parked has the time only, so Postgres sorts the events of one time by their ids. A person may have written
// an infinite time.
type parking struct {
	At pgtype.Timestamptz
	ID uuid.UUID
}

// retryPage is a batch of up to retryBatch parked events.
type retryPage struct {
	// after is the place before the first event. No event was parked later than last.
	after parking
	last  pgtype.Timestamptz
	// events is empty until the page was read.
	events []parking
}

// retryEach frees the events of p. The first attempt reads them: f selects them. A further attempt has the same
// events. Of these, it counts each event as freed that is no longer parked: the answer to an earlier COMMIT was lost, or
// another operator has freed the event.
func (b *Backlog) retryEach(ctx context.Context, o audit.Actor, f Filter, p *retryPage) (got Retried, err error) {
	again := len(p.events) > 0
	err = b.db.Tx(ctx, "retry", func(ctx context.Context, tx pgx.Tx) error {
		if !again {
			if err := p.read(ctx, tx, f); err != nil || len(p.events) == 0 {
				return err
			}
		}
		ids := make([]uuid.UUID, len(p.events))
		for i, e := range p.events {
			ids[i] = e.ID
		}
		n, err := free(ctx, tx, o, ids, "SKIP LOCKED")
		if got.Freed = int64(n); err != nil || n == len(ids) {
			return err
		}
		// A row that another session has freed or skipped since the page was read does not count.
		err = tx.QueryRow(ctx, `
			SELECT count(*) FROM outbox WHERE id = ANY ($1) AND published_at IS NULL AND parked_at IS NOT NULL`, ids).Scan(&got.Locked)
		if again {
			got.Freed = int64(len(ids)) - got.Locked
		}
		return err
	})
	if err != nil {
		return Retried{}, err
	}
	return got, nil
}

// read reads the events of p that f selects.
func (p *retryPage) read(ctx context.Context, tx pgx.Tx, f Filter) (err error) {
	// Without statistics the planner would read the whole table, or the whole index, for each page.
	if _, err := tx.Exec(ctx, `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`); err != nil {
		return err
	}
	rows, _ := tx.Query(ctx, `
		SELECT o.parked_at AS at, o.id FROM outbox o
		 WHERE o.published_at IS NULL AND o.parked_at IS NOT NULL AND (o.parked_at, o.id) > ($4::timestamptz, $5::uuid)
		   AND o.parked_at <= $7 AND `+where+`
		 ORDER BY o.parked_at, o.id LIMIT $6`, f.args(p.after.At, p.after.ID, retryBatch, p.last)...)
	p.events, err = pgx.CollectRows(rows, pgx.RowToStructByName[parking])
	return err
}

// freed resets a parked event, as if it had never been refused. Relays find it
// as a retry that is due.
const freed = `parked_at = NULL, next_retry_at = now(), publish_attempts = 0`

// free frees the parked events with these ids, and returns how many it has freed. wait is the clause of
// FOR UPDATE for rows that another session has locked.
func free(ctx context.Context, tx pgx.Tx, o audit.Actor, ids []uuid.UUID, wait string) (int, error) {
	rows, _ := tx.Query(ctx, `
		UPDATE outbox
		   SET `+freed+`
		 WHERE id IN (SELECT id FROM outbox
		               WHERE id = ANY ($1) AND published_at IS NULL AND parked_at IS NOT NULL FOR UPDATE `+wait+`)
		RETURNING id AS event_id, aggregate_type, aggregate_id, version`, ids)
	subjects, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[audit.Subject])
	if err != nil {
		return 0, err
	}
	return len(subjects), audit.Write(ctx, tx, "retry", o, subjects...)
}

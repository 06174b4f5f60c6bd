package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
)

// Outcome is what became of a run.
type Outcome struct {
	Run Run
	// Published is how many of the run's events, from its first, the broker
	// acknowledged.
	Published int
	// Fault is nil when the rest of the run, if any, is to be handed back as it
	// was.
	Fault *Fault
}

// Fault is why the first unpublished event of a run is not tried again at once.
type Fault struct {
	Reason string
	// RetryIn is when it is tried again.
	RetryIn time.Duration
	// Rejected says that the broker refused this very event, which spends an
	// attempt. Any other fault spends none.
	Rejected bool
	// Park keeps the event from being tried again until an operator acts.
	Park bool
}

// Settled is what Settle found.
type Settled struct {
	// Lost is the number of runs whose lease another relay has taken over since.
	Lost int
	// Followed reports whether a published event had a successor already, in the
	// statement's snapshot.
	Followed bool
}

// Settle writes back what became of some runs, in one statement. token is the
// fence: of a run whose lease is lost, nothing is written.
func (q Queue) Settle(ctx context.Context, token string, outcomes []Outcome) (s Settled, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var heads, published, publishedHeads, back []uuid.UUID
	var failed, failedHeads []uuid.UUID
	var reasons []string
	var retries []time.Duration
	var rejected, park []bool
	var last positions
	for _, o := range outcomes {
		heads = append(heads, o.Run.Head())
		for _, e := range o.Run[:o.Published] {
			published, publishedHeads = append(published, e.ID), append(publishedHeads, o.Run.Head())
		}
		if o.Published > 0 && o.Fault == nil {
			last.add(o.Run[:o.Published].Last())
		}
		switch {
		case o.Fault != nil:
			failed, failedHeads = append(failed, o.Run[o.Published].ID), append(failedHeads, o.Run.Head())
			reasons, retries = append(reasons, eventing.Reason(o.Fault.Reason)), append(retries, o.Fault.RetryIn)
			rejected, park = append(rejected, o.Fault.Rejected), append(park, o.Fault.Park)
		case o.Published == 0:
			back = append(back, o.Run.Head())
		}
	}
	var held int
	err = q.runRow(ctx, settle, []any{
		token, heads, published, publishedHeads,
		failed, failedHeads, reasons, retries, rejected, park, back, last.types, last.ids, last.versions,
	}, &held, &s.Followed)
	if err != nil {
		return Settled{}, fmt.Errorf("settle: %w", err)
	}
	s.Lost = len(outcomes) - held
	return s, nil
}

// A run whose first event is published has its lease on a row that is done: the
// fault of a later one is written without it.
//
// Rows are named by arrays, not joined: to a planner whose statistics say that
// the table is empty, all ways to join look alike.
const settle = `
WITH mine AS MATERIALIZED (
	SELECT id FROM outbox WHERE id = ANY($2::uuid[]) AND lock_token = $1 FOR UPDATE
), published AS (
	UPDATE outbox
	   SET published_at = clock_timestamp(), lock_token = NULL, locked_at = NULL, next_retry_at = NULL, last_error = NULL
	 WHERE id = ANY(ARRAY(SELECT p.id FROM unnest($3::uuid[], $4::uuid[]) AS p(id, head) WHERE p.head IN (SELECT id FROM mine)))
), failed AS (
	UPDATE outbox o
	   SET publish_attempts = o.publish_attempts + CASE WHEN f.rejected THEN 1 ELSE 0 END,
	       last_error = CASE WHEN o.parked_at IS NULL THEN f.reason ELSE o.last_error END,
	       next_retry_at = CASE WHEN f.park THEN NULL ELSE now() + f.retry END,
	       parked_at = CASE WHEN f.park THEN now() ELSE o.parked_at END,
	       lock_token = NULL, locked_at = NULL
	  FROM unnest($5::uuid[], $6::uuid[], $7::text[], $8::interval[], $9::boolean[], $10::boolean[])
	       AS f(id, head, reason, retry, rejected, park)
	 WHERE o.id = ANY($5::uuid[]) AND o.id = f.id AND o.published_at IS NULL AND f.head IN (SELECT id FROM mine)
), back AS (
	UPDATE outbox SET lock_token = NULL, locked_at = NULL
	 WHERE id = ANY(ARRAY(SELECT id FROM mine WHERE id = ANY($11::uuid[])))
)
SELECT (SELECT count(*) FROM mine),
       EXISTS (SELECT FROM unnest($12::text[], $13::text[], $14::bigint[]) AS done(aggregate_type, aggregate_id, version)
                CROSS JOIN LATERAL (` + successor + `) o)`

// Renew extends the leases under token of the runs with these heads, and returns
// the heads of which it still holds the lease.
func (q Queue) Renew(ctx context.Context, token string, heads []uuid.UUID) ([]uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var held []uuid.UUID
	err := q.run(ctx, `UPDATE outbox SET locked_at = now() WHERE id = ANY($1) AND lock_token = $2 RETURNING id`, []any{heads, token},
		func(rows pgx.Rows) (err error) {
			held, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			return err
		})
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", err)
	}
	return held, nil
}

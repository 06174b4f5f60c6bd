package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing"
)

// Settlement is the result of publishing a batch.
type Settlement struct {
	Batch Batch
	// Published is how many of the batch's events, from its first, the broker acknowledged.
	Published int
	// Failure is nil if Settle shall hand the rest of the batch, if any, back unchanged.
	Failure *Failure
}

// Failure is why the first unpublished event of a batch is not tried again at once.
type Failure struct {
	Reason string
	// RetryIn is when it is tried again.
	RetryIn time.Duration
	// Rejected says that the broker refused this very event, which spends an attempt. Any
	// other failure spends none.
	Rejected bool
	// Park keeps the event from being tried again until an operator acts.
	Park bool
}

// Settled is the result of Settle.
type Settled struct {
	// Lost is the number of batches with a lease that another relay has taken over.
	Lost int
	// Followed reports whether a published event had a successor already, in the
	// statement's snapshot.
	Followed bool
	// Locked are the heads of the batches that Settle has skipped because a session that is
	// not a relay has locked one of their rows.
	Locked []uuid.UUID
}

// Settle writes the results of batches in one statement. token is the fence: Settle writes
// nothing of a batch with a lost lease. A locked row blocks its own batch and no other.
func (q Queue) Settle(ctx context.Context, token string, outcomes []Settlement) (s Settled, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var heads, published, publishedHeads, back []uuid.UUID
	var failed, failedHeads []uuid.UUID
	var reasons []string
	var retries []time.Duration
	var rejected, park []bool
	var last, retried versionArrays
	var retriedHeads []uuid.UUID
	for _, o := range outcomes {
		heads = append(heads, o.Batch.Head())
		for _, e := range o.Batch[:o.Published] {
			published, publishedHeads = append(published, e.ID), append(publishedHeads, o.Batch.Head())
		}
		if o.Published > 0 && o.Failure == nil {
			last.add(o.Batch[:o.Published].Last())
			if o.Batch[0].Retry {
				retried.add(o.Batch[:o.Published].Last())
				retriedHeads = append(retriedHeads, o.Batch.Head())
			}
		}
		switch {
		case o.Failure != nil:
			failed, failedHeads = append(failed, o.Batch[o.Published].ID), append(failedHeads, o.Batch.Head())
			reasons, retries = append(reasons, eventing.Reason(o.Failure.Reason)), append(retries, o.Failure.RetryIn)
			rejected, park = append(rejected, o.Failure.Rejected), append(park, o.Failure.Park)
		case o.Published == 0:
			back = append(back, o.Batch.Head())
		}
	}
	args := []any{
		token, heads, published, publishedHeads,
		failed, failedHeads, reasons, retries, rejected, park, back, last.types, last.ids, last.versions,
		retriedHeads, retried.types, retried.ids, retried.versions,
	}
	var held int
	err = errLocked
	if q.keepsStatements { // otherwise the wait for a lock cannot be limited
		err = q.queryRow(ctx, genericPlanShortWait, settle, args, &held, &s.Followed, &s.Locked)
	}
	if isLocked(err) {
		err = q.queryRow(ctx, genericPlan, settleAroundLocks, args, &held, &s.Followed, &s.Locked)
	}
	if err != nil {
		return Settled{}, fmt.Errorf("settle: %w", err)
	}
	s.Lost = len(outcomes) - held - len(s.Locked)
	return s, nil
}

// settle writes the results of batches: published events, and for each batch one failure
// at most.
//
// Only the first row of a batch has the lease. When that row is published, the lease has no
// use any more, and the failure of a later event is written to a row without a lease.
//
// No relay looks for an event behind a retry before it finds the retry. So the statement that
// marks a retry as published makes the event behind it a retry, too. Any relay then finds
// it, even if this one dies now, and however old the event is.
//
// Rows are named by arrays, not joined: if statistics call the table empty, all joins cost
// the planner the same. For the same reason IN has "IS TRUE" behind it. A plain IN becomes
// a join, which compares each event with each head: 84 ms for 1,000 of them. With "IS TRUE"
// it stays a subquery, which is hashed.
const settle = `
WITH ` + behind + `, mine AS MATERIALIZED (
	SELECT id FROM outbox WHERE id = ANY($2::uuid[]) AND lock_token = $1 FOR UPDATE
), busy AS MATERIALIZED (
	SELECT NULL::uuid AS head WHERE false
), ` + writeSettlements

// settleAroundLocks skips the batches that have a locked row. It locks each row before it
// writes it, which costs as much again as the writing: settle is for the usual case, in
// which no row is locked.
const settleAroundLocks = `
WITH ` + behind + `, named AS MATERIALIZED (
	SELECT id, head FROM unnest($2::uuid[] || $3::uuid[] || $5::uuid[], $2::uuid[] || $4::uuid[] || $6::uuid[]) AS n(id, head)
	 UNION ALL
	SELECT id, head FROM behind
), free AS MATERIALIZED (
	SELECT id, lock_token FROM outbox WHERE id = ANY(ARRAY(SELECT id FROM named)) FOR UPDATE SKIP LOCKED
), locked AS MATERIALIZED (
	SELECT id FROM outbox WHERE id = ANY(ARRAY(SELECT id FROM named)) AND id NOT IN (SELECT id FROM free)
), busy AS MATERIALIZED (
	SELECT id AS head FROM outbox
	 WHERE id = ANY(ARRAY(SELECT n.head FROM named n WHERE (n.id IN (SELECT id FROM locked)) IS TRUE)) AND lock_token = $1
), mine AS MATERIALIZED (
	SELECT id FROM free
	 WHERE id = ANY($2::uuid[]) AND lock_token = $1
	   AND id NOT IN (SELECT n.head FROM named n WHERE (n.id IN (SELECT id FROM locked)) IS TRUE)
), ` + writeSettlements

const behind = `behind AS MATERIALIZED (
	SELECT o.id, done.head
	  FROM unnest($15::uuid[], $16::text[], $17::text[], $18::bigint[]) AS done(head, aggregate_type, aggregate_id, version)
	 CROSS JOIN LATERAL (` + nextPending + `) o
)`

const writeSettlements = `published AS (
	UPDATE outbox
	   SET published_at = clock_timestamp(), lock_token = NULL, locked_at = NULL, next_retry_at = NULL, last_error = NULL
	 WHERE id = ANY(ARRAY(SELECT p.id FROM unnest($3::uuid[], $4::uuid[]) AS p(id, head) WHERE (p.head IN (SELECT id FROM mine)) IS TRUE))
), failed AS (
	UPDATE outbox o
	   SET publish_attempts = o.publish_attempts + CASE WHEN f.rejected THEN 1 ELSE 0 END,
	       last_error = CASE WHEN o.parked_at IS NULL THEN f.reason ELSE o.last_error END,
	       next_retry_at = CASE WHEN f.park THEN NULL ELSE now() + f.retry END,
	       parked_at = CASE WHEN f.park THEN now() ELSE o.parked_at END,
	       lock_token = NULL, locked_at = NULL
	  FROM unnest($5::uuid[], $6::uuid[], $7::text[], $8::interval[], $9::boolean[], $10::boolean[])
	       AS f(id, head, reason, retry, rejected, park)
	 WHERE o.id = ANY($5::uuid[]) AND o.id = f.id AND o.published_at IS NULL AND (f.head IN (SELECT id FROM mine)) IS TRUE
), retried AS (
	UPDATE outbox SET next_retry_at = now()
	 WHERE id = ANY(ARRAY(SELECT id FROM behind WHERE (head IN (SELECT id FROM mine)) IS TRUE)) AND next_retry_at IS NULL AND parked_at IS NULL
), back AS (
	UPDATE outbox SET lock_token = NULL, locked_at = NULL
	 WHERE id = ANY(ARRAY(SELECT id FROM mine WHERE id = ANY($11::uuid[])))
)
SELECT (SELECT count(*) FROM mine),
       EXISTS (SELECT FROM unnest($12::text[], $13::text[], $14::bigint[]) AS done(aggregate_type, aggregate_id, version)
                CROSS JOIN LATERAL (` + nextPending + `) o),
       ARRAY(SELECT head FROM busy)`

// Renew extends the leases under token of the batches with these heads. It returns the
// heads that it has extended, and those whose lease is not token's any more. A head that
// another session has locked is in neither.
func (q Queue) Renew(ctx context.Context, token string, heads []uuid.UUID) (held, lost []uuid.UUID, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := q.queryRow(ctx, genericPlan, renew, []any{heads, token}, &held, &lost); err != nil {
		return nil, nil, fmt.Errorf("renew leases: %w", err)
	}
	return held, lost, nil
}

const renew = `
WITH free AS MATERIALIZED (
	SELECT id FROM outbox WHERE id = ANY($1::uuid[]) AND lock_token = $2 FOR UPDATE SKIP LOCKED
), held AS (
	UPDATE outbox SET locked_at = now() WHERE id = ANY(ARRAY(SELECT id FROM free)) RETURNING id
)
SELECT ARRAY(SELECT id FROM held),
       ARRAY(SELECT head FROM unnest($1::uuid[]) AS head
              WHERE head <> ALL(ARRAY(SELECT id FROM outbox WHERE id = ANY($1::uuid[]) AND lock_token = $2)))`

// SQLSTATEs.
const (
	lockNotAvailable = "55P03"
	queryCanceled    = "57014"
)

// errLocked stands for a statement that was not tried.
var errLocked = &pgconn.PgError{Code: lockNotAvailable}

func isLocked(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == lockNotAvailable
}

// IsTimeout reports whether a statement ran out of time. A statement that does less may
// then pass.
func IsTimeout(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) || ok && e.Code == queryCanceled
}

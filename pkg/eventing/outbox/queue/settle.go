package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/txn"
)

// Settlement is the result of publishing a batch.
type Settlement struct {
	Batch Batch
	// Published is how many events of the batch, from the first on, the broker has acknowledged.
	Published int
	// Failure is the failure of the first unpublished event. If Failure is nil, Settle hands the
	// rest of the batch back unchanged.
	Failure *Failure
}

// Failure says why the first unpublished event of a batch is not tried again at once.
type Failure struct {
	Reason string
	// RetryIn is the time until the event is tried again.
	RetryIn time.Duration
	// Refused says that the broker refused this event itself, which spends an attempt. Any
	// other failure spends no attempt. If a statement without an answer has written the same refusal
	// before, Settle does not count the refusal again.
	Refused bool
	// Park keeps the event from being tried again until an operator acts.
	Park bool
}

// attempts returns the attempts of a refused event before the refusal, or nil if the failure is no refusal.
func (s Settlement) attempts() *int {
	if !s.Failure.Refused {
		return nil
	}
	return &s.Batch[s.Published].Refusals
}

// Settled is the result of Settle.
type Settled struct {
	// Lost are the heads of the batches whose lease no longer has the token. Another relay has taken
	// the lease over, or a late statement of this relay has settled the batch.
	Lost []uuid.UUID
	// Followed reports whether, in the statement's snapshot, a published event already had a
	// pending event behind it.
	Followed bool
	// Locked are the heads of the batches that Settle has skipped, because another session has
	// locked one of their rows.
	Locked []uuid.UUID
	// Elsewhere has those of the lost heads that Settle should have handed back, and that its snapshot saw
	// pending. A relay that the others regard as dead may have claimed them. If the statement waited for that
	// claim, its snapshot may still show the given token at such a head.
	Elsewhere []uuid.UUID
}

// Settle writes the results of batches in one statement. It writes nothing of a batch whose lease
// no longer has the given token. A locked row keeps only its own batch from being written.
func (q Queue) Settle(ctx context.Context, token string, outcomes []Settlement) (s Settled, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	var heads, published, publishedHeads, back []uuid.UUID
	var failed, failedHeads []uuid.UUID
	var reasons []string
	var retries []time.Duration
	var attempts []*int
	var park []bool
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
			attempts, park = append(attempts, o.attempts()), append(park, o.Failure.Park)
		case o.Published == 0:
			back = append(back, o.Batch.Head())
		}
	}
	args := []any{
		token, heads, published, publishedHeads,
		failed, failedHeads, reasons, retries, attempts, park, back, last.types, last.ids, last.versions,
		retriedHeads, retried.types, retried.ids, retried.versions,
	}
	var held []uuid.UUID
	locked := !q.keepsStatements // then no lock_timeout can be set, and only settleAroundLocks is tried
	if q.keepsStatements {
		err = q.queryRow(ctx, settlePlanShortWait, settle, args, &held, &s.Followed, &s.Locked, &s.Elsewhere)
		locked = txn.IsLockTimeout(err)
	}
	if locked {
		err = q.queryRow(ctx, settlePlan, settleAroundLocks, args, &held, &s.Followed, &s.Locked, &s.Elsewhere)
	}
	if err != nil {
		return Settled{}, fmt.Errorf("settle: %w", err)
	}
	s.Lost = slices.DeleteFunc(heads, func(h uuid.UUID) bool { return slices.Contains(held, h) || slices.Contains(s.Locked, h) })
	return s, nil
}

// Renew extends the leases of the batches with these heads, if the leases still have the given
// token. held are the heads whose leases Renew has extended. lost are the heads whose leases no
// longer have the token. A head that another session has locked is in neither list.
func (q Queue) Renew(ctx context.Context, token string, heads []uuid.UUID) (held, lost []uuid.UUID, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	if err := q.queryRow(ctx, genericPlan, renew, []any{heads, token}, &held, &lost); err != nil {
		return nil, nil, fmt.Errorf("renew leases: %w", err)
	}
	return held, lost, nil
}

const queryCanceled = "57014" // a SQLSTATE

// IsTimeout reports whether err means that a statement ran out of time. A statement with less to
// do may then succeed.
func IsTimeout(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err) || ok && e.Code == queryCanceled
}

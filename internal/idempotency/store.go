package idempotency

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/instrument"
)

// answered is the code of the error that idempotency_refuses (migration 01002 of video) raises. The class LS has the
// codes of Lockstep's own SQL functions.
const answered = "LS005"

// Remember queues the answer on b. The statement waits while the transaction of a concurrent
// duplicate holds the key. b fails with ErrAnswered if that transaction commits, or if a live key
// was there before. An expired key is replaced.
//
// The database raises the error, so that a COMMIT in the same round trip is not executed.
func (r Request) Remember(b *pgx.Batch, answer any) error {
	if r.key == "" {
		return nil
	}
	response, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("remember answer: %w", err)
	}
	b.Queue(`
		WITH kept AS (
		  INSERT INTO idempotency_keys AS k (principal, operation, key, request_hash, response)
		  VALUES ($1, $2, $3, $4, $5)
		  ON CONFLICT (principal, operation, key) DO UPDATE
		     SET request_hash = excluded.request_hash, response = excluded.response, created_at = excluded.created_at
		   WHERE k.created_at <= now() - interval '24 hours'
		  RETURNING true)
		SELECT CASE WHEN NOT EXISTS (SELECT FROM kept) THEN idempotency_refuses() END`,
		r.principal, r.operation, r.key, r.hash, response).Query(func(rows pgx.Rows) error {
		rows.Close()
		if refused, ok := errors.AsType[*pgconn.PgError](rows.Err()); ok && refused.Code == answered {
			return ErrAnswered
		}
		return rows.Err()
	})
	return nil
}

// Stored is a remembered request with its answer. The zero value means that there is none.
type Stored struct{ Hash, Response []byte }

// Found reports whether there is an answer.
func (s Stored) Found() bool { return s.Response != nil }

// Recall queues a query for the stored answer on b. If there is one, *answer holds it after b has
// run. The caller queues Recall behind the statement that takes the lock: a request that waited there
// for another request with its key then sees the other's answer.
func (r Request) Recall(b *pgx.Batch, answer *Stored) { r.recall(b, "", answer) }

// recall is Recall with lock at the end of its query. lock is a clause that locks the answer's row, or empty.
func (r Request) recall(b *pgx.Batch, lock string, answer *Stored) {
	if r.key == "" {
		return
	}
	b.Queue(`
		SELECT request_hash AS hash, response
		  FROM idempotency_keys
		 WHERE principal = $1 AND operation = $2 AND key = $3 AND created_at > now() - interval '24 hours' `+lock,
		r.principal, r.operation, r.key).Query(func(rows pgx.Rows) error {
		stored, err := pgx.CollectRows(rows, pgx.RowToStructByName[Stored])
		if len(stored) > 0 {
			*answer = stored[0]
		}
		return err
	})
}

const (
	// sweepBatch is how many keys one statement removes. The statement takes milliseconds, so it
	// locks rows only for a short time. An expired key that is not yet removed does no harm,
	// because the next request with that key replaces it.
	sweepBatch = 1000
	// sweepBudget bounds one pass over the expired keys. sweepTimeout bounds each statement of the
	// pass.
	sweepBudget, sweepTimeout = time.Minute, 5 * time.Second
	// maxWaiting is the most expired keys that countExpired counts.
	maxWaiting = 100_000
)

// Sweep removes expired keys until ctx ends, then returns nil. It first removes all expired keys.
// Then it makes a pass over them about once a minute. Any number of calls of Sweep may run on one
// database at once, and share the work. If a key cannot be removed, the next pass tries again.
// Sweep calls heartbeat before each batch of each pass.
func Sweep(ctx context.Context, db *pgxpool.Pool, log *slog.Logger, heartbeat func()) error {
	jitter := backoff.Policy{Base: time.Minute, Cap: time.Minute}
	waiting := instrument.For("example.com/lockstep/internal/idempotency").Set("idempotency.expired_keys", "{key}",
		"Expired idempotency keys that the sweep had left when it was last through, 100,000 at most")
	for {
		pause := 30*time.Second + jitter.Delay(1)
		_, more, err := sweep(ctx, db, sweepBudget, heartbeat)
		switch {
		case err != nil && ctx.Err() == nil:
			log.WarnContext(ctx, "expired idempotency keys not removed", "error", err)
		case more:
			pause = 0
		}
		if n, err := countExpired(ctx, db); err == nil {
			waiting.Record(ctx, n)
		}
		if !backoff.Sleep(ctx, pause, nil) {
			return nil
		}
	}
}

// sweep removes expired keys, the oldest first, until a batch has fewer keys than sweepBatch or the
// budget is spent. more reports that the budget is spent.
func sweep(ctx context.Context, db *pgxpool.Pool, budget time.Duration, heartbeat func()) (removed int64, more bool, err error) {
	from := time.Time{}
	for end := time.Now().Add(budget); time.Now().Before(end); {
		heartbeat()
		n, last, err := removeBatch(ctx, db, from)
		removed += n
		if err != nil || n < sweepBatch {
			return removed, false, err
		}
		from = *last // skips the dead index entries before last, which take time to pass
	}
	return removed, true, nil
}

//go:embed remove_expired.sql
var removeExpired string

// removeBatch removes expired keys that were created at from or later, the oldest first. It returns
// the number of removed keys and the latest creation time among them. It skips keys that another
// instance is removing.
func removeBatch(ctx context.Context, db *pgxpool.Pool, from time.Time) (n int64, last *time.Time, err error) {
	err = bounded.Pool{DB: db, Limit: sweepTimeout}.Statement("remove expired keys", removeExpired, sweepBatch, from).Scan(ctx, &n, &last)
	return n, last, err
}

// countExpired counts the keys that wait for a sweep, up to maxWaiting. Without statistics the planner expects that a third of
// the keys are older than a time, and would read all keys for the first of them. For a range with two bounds it uses
// the index.
func countExpired(ctx context.Context, db *pgxpool.Pool) (n int64, err error) {
	err = bounded.Pool{DB: db, Limit: sweepTimeout}.Statement("count expired keys", `
		SELECT count(*) FROM (
		  SELECT FROM idempotency_keys
		   WHERE created_at >= '-infinity' AND created_at <= now() - interval '24 hours' LIMIT $1) AS expired`, maxWaiting).Scan(ctx, &n)
	return n, err
}

// answersPages is how many pages of the table one statement reads. The statement takes
// milliseconds.
const answersPages = 128

// answersInPages counts or removes the answers in the pages of the table from $1 to $2, and says
// whether there are further pages.
//
//go:embed answers_in_pages.sql
var answersInPages string

// CountAnswers counts the stored answers to a principal in all tenants. principal is the caller's
// Scope in the default tenant. CountAnswers also counts the answers to other principals that
// contain the user's id, because an admin may have written for the user. It reads the whole table,
// which has the keys of one day.
func CountAnswers(ctx context.Context, db *pgxpool.Pool, principal, user string) (n int64, err error) {
	return answers(ctx, db, principal, user, false)
}

// RemoveAnswers removes the answers that CountAnswers counts, and returns their number. A retry of
// a request whose answer was removed is then a new request.
func RemoveAnswers(ctx context.Context, db *pgxpool.Pool, principal, user string) (n int64, err error) {
	return answers(ctx, db, principal, user, true)
}

func answers(ctx context.Context, db *pgxpool.Pool, principal, user string, remove bool) (n int64, err error) {
	for page, more := 0, true; more; page += answersPages {
		var found int64
		err := bounded.Pool{DB: db, Limit: sweepTimeout}.Statement("answers of a user", answersInPages,
			page, page+answersPages, principal, user, remove).Scan(ctx, &found, &more)
		if err != nil {
			return n, err
		}
		n += found
	}
	return n, nil
}

package video

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
)

// Write is what comes along with a write.
type Write struct {
	// Keys are the values of Idempotency-Key, of which there may be one: a
	// retry with it within 24 hours gets the first answer.
	Keys []string
	// IfVersion makes the write fail unless the video has this version; 0 is any.
	IfVersion int64
	// bad is what the protocol found wrong. It is reported together with what
	// the rules find.
	bad faults
}

// request is a write as its idempotency key knows it. REST and gRPC name an
// operation alike, so a key holds across both.
type request struct {
	operation, key string
	hash           []byte
}

// request returns the checked request. Its hash is over the decoded body:
// spaces and the order of fields do not make it another one.
func (w Write) request(operation string, body any, bad faults) (request, error) {
	w.bad.merge(bad)
	key := strings.Join(w.Keys, " ") // two of them are one with a forbidden space
	invisible := func(c rune) bool { return c < '!' || c > '~' }
	w.bad.unless(len(w.Keys) == 0 || 0 < len(key) && len(key) <= 255 && !strings.ContainsFunc(key, invisible),
		"Idempotency-Key", "must be one value of 1 to 255 visible ASCII characters")
	if err := w.bad.err(); err != nil {
		return request{}, err
	}
	hash := sha256.Sum256(encode(body))
	return request{operation, key, hash[:]}, nil
}

// only is the canonical form of a patch.
func (v Video) only(fields []string) any {
	var patch Video
	patch.set(fields, v)
	return []any{fields, patch}
}

// encode panics on what checked values never hold, such as the year 10000.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode for idempotency key: %w", err))
	}
	return b
}

// errAnswered means that another transaction has answered this request.
var errAnswered = errors.New("the idempotency key is in use")

// remember queues the answer v. Until the transaction ends, a twin's statement
// waits for this one; if it commits, the twin fails with errAnswered.
func (r request) remember(b *pgx.Batch, v Video) {
	if r.key != "" {
		insertKey(b, r, encode(v))
	}
}

// remembered is a stored request with its answer, a Video that both protocols
// can render.
type remembered struct{ Hash, Response []byte }

// answer is the first answer again, unless the first request was another one.
func (r request) answer(first remembered) (Answer, error) {
	if !bytes.Equal(first.Hash, r.hash) {
		e := problem.New(problem.CodeKeyReused, "", "The idempotency key was used for another request.")
		e.Fields = []problem.Field{{Field: "Idempotency-Key", Detail: "was used for another request"}}
		return Answer{}, e
	}
	a := Answer{Replayed: true}
	if err := json.Unmarshal(first.Response, &a.Video); err != nil {
		return Answer{}, fmt.Errorf("decode first answer: %w", err)
	}
	return a, nil
}

// replay answers a request that another transaction has answered.
func (r request) replay(ctx context.Context, db *pgxpool.Pool) (Answer, error) {
	first, err := selectKey(ctx, db, r)
	if err != nil {
		return Answer{}, fmt.Errorf("replay: %w", err)
	}
	if first == nil { // it expired since the insert met it
		return Answer{}, problem.New(problem.CodeUnavailable, "", "The idempotency key has just expired.")
	}
	return r.answer(*first)
}

// A sweep removes up to 20 × 500 keys, each batch in milliseconds, so that row
// locks are short. An expired key that is still there does no harm: it is
// replaced when it comes again.
const (
	sweepBatches = 20
	sweepBatch   = 500
	sweepTimeout = 10 * time.Second
)

// sweepKeys removes expired idempotency keys until ctx ends, then returns nil.
// Any number may run on one database; what fails is left to the next sweep.
func sweepKeys(ctx context.Context, db *pgxpool.Pool, log *slog.Logger, beat func()) error {
	jitter := eventing.Backoff{Base: time.Minute, Cap: time.Minute}
	for {
		beat()
		if err := sweep(ctx, db); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "expired idempotency keys not removed", "error", err)
		}
		if !eventing.Sleep(ctx, 30*time.Second+jitter.Delay(1), nil) {
			return nil
		}
	}
}

func sweep(ctx context.Context, db *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	for range sweepBatches {
		n, err := deleteExpiredKeys(ctx, db, sweepBatch)
		if err != nil || n < sweepBatch {
			return err
		}
	}
	return nil
}

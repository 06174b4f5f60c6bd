// Package idempotency lets a client retry a write without doing it twice. It implements the
// Idempotency-Key header (draft-ietf-httpapi-idempotency-key-header).
//
// The key, a hash of the request and the answer are stored as a row in the write's own transaction,
// so a key is remembered exactly if its write has happened. A concurrent duplicate of a running
// request waits for that request and gets its answer. The same key with another request is refused.
// Keys live for 24 hours. The table is the idempotency_keys that the connection's search_path
// finds.
package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/problem"
)

// Header carries the key over REST. gRPC metadata has the same name in lower case.
const Header = "Idempotency-Key"

// ErrAnswered means that another transaction has answered the request. The caller
// rolls back and answers with Replay.
var ErrAnswered = errors.New("the idempotency key is in use")

// Request has the parts of a write that identify it: the caller, the operation, the key, and a hash
// of the fields. A request without a key is never remembered.
type Request struct {
	principal, operation, key string
	hash                      []byte
}

// NewRequest returns the request. If there are violations, it returns one error with all of them. These are
// the violations in found and, if the values of the header are not valid, one of the header. The parameters
// are:
//
//   - principal: the Scope of the caller. A key belongs to its principal, so other callers may use the same
//     key, and never get its answer.
//   - operation: the method and the path of REST, for all protocols, so that a key holds across protocols.
//   - keys: the values of the header, none or one.
//   - sent: the fields that the caller gave, by their names in REST, with their decoded values. So two
//     requests that differ only in spaces, in the order of fields or in the protocol are the same request.
//     A field that a later release adds does not change the hash of requests without the field.
func NewRequest(principal, operation string, keys []string, sent map[string]any, found problem.Violations) (Request, error) {
	key := strings.Join(keys, " ") // two keys become one key with a space, which is not allowed
	invisible := func(c rune) bool { return c < '!' || c > '~' }
	found.Require(len(keys) == 0 || 0 < len(key) && len(key) <= 255 && !strings.ContainsFunc(key, invisible),
		Header, "must be one value of 1 to 255 visible ASCII characters")
	if err := found.Err(); err != nil {
		return Request{}, err // a request that is refused is not encoded
	}
	encoded, err := json.Marshal(sent) // in the order of the names
	if err != nil {
		return Request{}, fmt.Errorf("hash request: %w", err)
	}
	hash := sha256.Sum256(encoded)
	return Request{principal, operation, key, hash[:]}, nil
}

// Name returns a name that is unique to the key, its principal and its operation. It is empty if
// there is no key.
func (r Request) Name() string {
	if r.key == "" {
		return ""
	}
	return strings.TrimSpace(r.principal + " " + r.operation + " " + r.key)
}

// decode decodes the first answer into answer. It fails if the stored request is not the same as r.
func (r Request) decode(first Stored, answer any) error {
	if !bytes.Equal(first.Hash, r.hash) {
		e := problem.New(problem.CodeKeyReused, "", "The idempotency key was used for another request.")
		e.Fields = []problem.Field{{Field: Header, Detail: "was used for another request"}}
		return e
	}
	if err := json.Unmarshal(first.Response, answer); err != nil {
		return fmt.Errorf("decode first answer: %w", err)
	}
	return nil
}

// Replay decodes the answer of the transaction that came first. The caller calls it after ErrAnswered, in a
// transaction of its own that ends with this batch.
//
// The client of the first transaction may have seen an error although that transaction has committed, because
// a synchronous standby did not answer. The answer must not confirm the write before the standby has it. So
// Replay locks the row of the answer. This makes the transaction a write, and its commit waits for the standby.
func (r Request) Replay(ctx context.Context, tx pgx.Tx, answer any) error {
	var first Stored
	b := &pgx.Batch{}
	r.recall(b, "FOR KEY SHARE", &first)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if !first.Found() { // the key expired after it had been found
		return problem.New(problem.CodeUnavailable, "", "The idempotency key has just expired.")
	}
	return r.decode(first, answer)
}

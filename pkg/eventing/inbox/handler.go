package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

// Outcome is the result of applying a change.
type Outcome int

// The outcomes of applying a change.
const (
	// Applied means that the read model moved to the event's version.
	Applied Outcome = iota + 1
	// Stale means that the read model was there already or beyond. Nothing was
	// written.
	Stale
	// Gap means that the read model lacks the version before. Nothing was
	// written; the consumer repairs the aggregate from its owner.
	Gap
	// Diverged means that the read model has another history than the event: the
	// owner has lost commits. Nothing was written; the consumer takes the owner's
	// state, also one of a lower version.
	Diverged
	// Lost means that the owner has no such event any more. Nothing was written.
	Lost
	outcomeCount
)

func (o Outcome) String() string {
	return [outcomeCount]string{"duplicate", Applied: "applied", Stale: "stale", Gap: "gap", Diverged: "diverged", Lost: "lost"}[o]
}

// needsOwner reports whether an event waits until its owner's state is there.
func (o Outcome) needsOwner() bool { return o == Gap || o == Diverged }

// Change is an event and its decoded payload.
type Change struct {
	Event eventing.Event
	// Kind decides which state the change requires.
	Kind Kind
	// Payload is the service's own: its Decode makes it, its Apply reads it.
	Payload any
	// Revision is that of the build that has decoded Payload, and Partial says that
	// Payload has more than this build understands: see Completeness. A service that
	// keeps no Completeness leaves both zero.
	Revision int64
	Partial  bool
}

// Handler is a service's treatment of its events. ApplyChanges and Each make its Apply
// of smaller parts, Route joins the handlers of several types.
type Handler interface {
	// Decode reads e's payload and checks it against e's attributes, once and
	// outside of any transaction. No error of Decode is retried: e goes to the dead
	// letters. An error that is ErrUnknown says that a newer build may know e: when
	// many aggregates have such events, the consumer holds them instead.
	Decode(e eventing.Event) (Change, error)
	// Apply brings the read model forward by changes, within tx, and returns the
	// outcome of each. They are ordered by aggregate (eventing.Event.Key), and
	// by version within one. An error rolls all of them back, and they are tried
	// again in smaller parts until the one at fault is alone;
	// eventing.Permanent then sends it to the dead letters at once, otherwise it
	// is tried a few times first. Apply locks rows in the order of their ids,
	// and must not call another service, since it holds locks. Settings that Apply makes for its
	// transaction, such as txn.KeepPlans, also hold for the handlers of other types in a Route.
	Apply(ctx context.Context, tx pgx.Tx, changes []Change) ([]Outcome, error)
	// Repair gives e's aggregate the owner's state, in transactions of its own: of
	// e.Version or beyond, or of any version if the owner has lost e. Then the error
	// is ErrLost, and the consumer acknowledges e. The consumer repeats Repair after
	// other errors until it succeeds, except after eventing.Permanent ones.
	Repair(ctx context.Context, e eventing.Event) error
	// Committed receives, after each commit, the aggregates that moved, and the positions that
	// the read model has reached. Version 0 stands for a position that the caller does not
	// know. ctx has the trace of the commit. It must not block.
	Committed(ctx context.Context, moved ...consistency.Position)
}

// Each applies changes one at a time. A Handler's Apply may consist of it.
func Each(
	ctx context.Context, tx pgx.Tx, changes []Change, apply func(context.Context, pgx.Tx, Change) (Outcome, error),
) ([]Outcome, error) {
	outcomes := make([]Outcome, len(changes))
	for i, c := range changes {
		var err error
		if outcomes[i], err = apply(ctx, tx, c); err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// ApplyOne decodes e and applies it alone, as the consumer of h would.
func ApplyOne(ctx context.Context, tx pgx.Tx, h Handler, e eventing.Event) (Outcome, error) {
	g := guarded{h}
	c, err := g.read(e)
	if err != nil {
		return 0, err
	}
	outcomes, err := g.do(ctx, tx, []Change{c})
	if err != nil {
		return 0, err
	}
	return outcomes[0], nil
}

// guarded holds a Handler to its contract.
type guarded struct{ Handler }

// read is Decode with permanent errors.
func (h guarded) read(e eventing.Event) (c Change, err error) {
	defer func() {
		c.Event = e
		if err = orPanic(recover(), err); err != nil {
			err = eventing.Permanent(fmt.Errorf("decode event: %w", err))
		}
	}()
	return h.Decode(e)
}

// do is Apply with an outcome for each change.
func (h guarded) do(ctx context.Context, tx pgx.Tx, changes []Change) (outcomes []Outcome, err error) {
	defer func() { err = orPanic(recover(), err) }()
	outcomes, err = h.Apply(ctx, tx, changes)
	if err == nil && len(outcomes) != len(changes) {
		err = fmt.Errorf("handler has %d outcomes for %d changes", len(outcomes), len(changes))
	}
	return outcomes, err
}

// panicError is a handler's panic. The process lives: a message that panics must
// not come back for ever.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.value) }

// orPanic is err, or the recovered panic if there is one.
func orPanic(recovered any, err error) error {
	if recovered == nil {
		return err
	}
	// An error that is thrown keeps its nature: a broken connection is one.
	if thrown, ok := recovered.(error); ok {
		return errors.Join(&panicError{value: recovered, stack: debug.Stack()}, thrown)
	}
	return &panicError{value: recovered, stack: debug.Stack()}
}

// runs cuts s where key changes.
func runs[T any, K comparable](s []T, key func(T) K) (parts [][]T) {
	for start, i := 0, 1; i <= len(s); i++ {
		if i == len(s) || key(s[i]) != key(s[start]) {
			parts = append(parts, s[start:i:i])
			start = i
		}
	}
	return parts
}

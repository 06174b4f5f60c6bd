package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

// Outcome is the result of applying a change. The zero Outcome stands for a duplicate. Its event
// was done before, so no change was applied. A Handler never returns it.
type Outcome int

// The outcomes of applying a change. They begin at 1, because 0 is a duplicate.
const (
	// Applied means that the read model moved to the event's version.
	Applied Outcome = iota + 1
	// Stale means that the read model was at the event's version already, or beyond it. Nothing was
	// written.
	Stale
	// Gap means that the change does not fit the row, mostly because the read model lacks the
	// version before the event's version. Nothing was written. The consumer repairs the aggregate
	// from its owner.
	Gap
	// Diverged means that the event is of another history than the read model, because the owner
	// has lost commits. Nothing was written. The consumer takes the owner's state, even if that has
	// a lower version. For an owner's state, Diverged has another meaning: see Adopt.
	Diverged
	// Lost means that the owner no longer has the event. Nothing was written.
	Lost
	outcomeCount
)

// String returns the outcome's name in metrics and logs. The zero Outcome, which has no constant,
// is a duplicate.
func (o Outcome) String() string {
	if !o.isKnown() {
		return fmt.Sprintf("outcome(%d)", int(o))
	}
	return [outcomeCount]string{"duplicate", Applied: "applied", Stale: "stale", Gap: "gap", Diverged: "diverged", Lost: "lost"}[o]
}

func (o Outcome) isKnown() bool { return o >= 0 && o < outcomeCount }

// needsOwner reports whether an event must wait until the read model has its owner's state.
func (o Outcome) needsOwner() bool { return o == Gap || o == Diverged }

// Change is an event and its decoded payload.
type Change struct {
	Event eventing.Event
	// Kind decides in which states of the row the change may be applied.
	Kind Kind
	// Payload has a type that only the service knows. The service's Decode makes Payload, and the
	// service's Apply reads it.
	Payload any
	// Revision is the revision of the build that decoded Payload. Partial says that the event has
	// more than this build understands: see Completeness. A service that keeps no Completeness
	// leaves both zero.
	Revision int64
	Partial  bool
}

// Handler processes the events of a service. ApplyChanges and Each help to write its Apply. Route
// combines the handlers of several types.
type Handler interface {
	// Decode reads e's payload and checks it against e's attributes. Decode is called once for each
	// message, outside of any transaction. If Decode returns an error, e goes to the dead letters
	// without a retry. ErrUnknown means that a newer build may know e. If many aggregates have such
	// events, the consumer holds the events instead of dead-lettering them.
	Decode(e eventing.Event) (Change, error)
	// Apply moves the read model forward by changes, within tx, and returns the outcome of each
	// change. The changes are ordered by aggregate (eventing.Event.Key), and by version within an
	// aggregate. An error rolls all changes back. The consumer then tries the changes again in
	// smaller parts, until the change at fault is alone. After eventing.Permanent the event of that
	// change goes to the dead letters at once. After another error the event is tried a few times
	// first. After an error of a lock, or of a table or a grant that is missing, the event is tried until
	// it succeeds. Apply locks rows in the order of their ids, and must not call another service while it
	// holds these locks. Settings that Apply makes for its transaction, such as txn.KeepPlans, also
	// hold for the handlers of other types in a Route.
	Apply(ctx context.Context, tx pgx.Tx, changes []Change) ([]Outcome, error)
	// Repair gives e's aggregate the owner's state, in transactions of its own. The state has
	// e.Version or a later version. If the owner has lost e, the state may have any version, and
	// Repair returns ErrLost. The consumer then acknowledges e. After any other error the consumer
	// repeats Repair until it succeeds, unless the error is eventing.Permanent. After a success the
	// consumer passes e to Apply again, which finds that e is Stale. If Apply returns Gap each time, such as
	// for an event that it cannot apply in any state, the consumer repairs the aggregate for ever.
	Repair(ctx context.Context, e eventing.Event) error
	// Committed is called after a commit, with the position of each aggregate that moved. Version
	// 0 stands for a position that the caller does not know. ctx has the trace of the commit.
	// Committed must not block. If Committed panics, the consumer logs the panic.
	Committed(ctx context.Context, moved ...consistency.Position)
}

// Each calls apply for one change after the other, until apply returns an error. A Handler's Apply
// may consist of a call of Each.
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

// ApplyOne decodes e with h and applies e alone, as a consumer with the handler h does.
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

// guarded turns the panics of a Handler into errors, and checks how many outcomes the Handler
// returns.
type guarded struct{ Handler }

// read calls Decode, and makes its errors permanent.
func (g guarded) read(e eventing.Event) (c Change, err error) {
	defer func() {
		c.Event = e
		if err = orPanic(recover(), err); err != nil {
			err = eventing.Permanent(fmt.Errorf("decode event: %w", err))
		}
	}()
	return g.Decode(e)
}

// do calls Apply, and checks that there is a known outcome for each change.
func (g guarded) do(ctx context.Context, tx pgx.Tx, changes []Change) (outcomes []Outcome, err error) {
	defer func() { err = orPanic(recover(), err) }()
	outcomes, err = g.Apply(ctx, tx, changes)
	if err == nil && len(outcomes) != len(changes) {
		err = fmt.Errorf("handler has %d outcomes for %d changes", len(outcomes), len(changes))
	}
	if i := slices.IndexFunc(outcomes, func(o Outcome) bool { return o == 0 || !o.isKnown() }); err == nil && i >= 0 {
		err = fmt.Errorf("handler has an unknown outcome for %s: %v", changes[i].Event.Key(), outcomes[i])
	}
	return outcomes, err
}

// panicError is a handler's panic. The consumer recovers the panic. If the panic ended the process,
// the message would come back and end the next process, too, and so on for ever.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.value) }

// committed calls Committed, and turns its panic into an error.
func (g guarded) committed(ctx context.Context, moved ...consistency.Position) (err error) {
	defer func() { err = orPanic(recover(), nil) }()
	g.Committed(ctx, moved...)
	return nil
}

// orPanic returns err, or the recovered panic as an error if there is one.
func orPanic(recovered any, err error) error {
	if recovered == nil {
		return err
	}
	// If the value of the panic is an error, such as a broken connection, it stays in the chain,
	// so that it can be classified.
	if thrown, ok := recovered.(error); ok {
		return errors.Join(&panicError{value: recovered, stack: debug.Stack()}, thrown)
	}
	return &panicError{value: recovered, stack: debug.Stack()}
}

// Route is the Handler of a subscription that carries several types of aggregates. It maps each
// type to its handler. An event of any other type is unknown (ErrUnknown).
type Route map[string]Handler

// Decode calls the handler of the event's type.
func (r Route) Decode(e eventing.Event) (Change, error) {
	h, ok := r[e.AggregateType]
	if !ok {
		return Change{}, errUnknownType(e)
	}
	return h.Decode(e)
}

// Apply calls the handler of each type in turn.
func (r Route) Apply(ctx context.Context, tx pgx.Tx, changes []Change) (all []Outcome, err error) {
	for _, part := range runs(changes, func(c Change) string { return c.Event.AggregateType }) {
		outcomes, err := guarded{r[part[0].Event.AggregateType]}.do(ctx, tx, part)
		if err != nil {
			return nil, err
		}
		all = append(all, outcomes...)
	}
	return all, nil
}

// Repair calls the handler of the event's type.
func (r Route) Repair(ctx context.Context, e eventing.Event) error {
	h, ok := r[e.AggregateType]
	if !ok {
		return eventing.Permanent(errUnknownType(e))
	}
	return h.Repair(ctx, e)
}

// Committed calls the handler of each type that moved, with the positions of that type.
func (r Route) Committed(ctx context.Context, moved ...consistency.Position) {
	byType := map[string][]consistency.Position{}
	for _, at := range moved {
		byType[at.AggregateType] = append(byType[at.AggregateType], at)
	}
	for kind, positions := range byType {
		if h, ok := r[kind]; ok {
			h.Committed(ctx, positions...)
		}
	}
}

func errUnknownType(e eventing.Event) error {
	return fmt.Errorf("aggregate_type: %q: %w", e.AggregateType, ErrUnknown)
}

// runs splits s into parts. A part is a series of consecutive elements that have the same key.
func runs[T any, K comparable](s []T, key func(T) K) (parts [][]T) {
	for start, i := 0, 1; i <= len(s); i++ {
		if i == len(s) || key(s[i]) != key(s[start]) {
			parts = append(parts, s[start:i:i])
			start = i
		}
	}
	return parts
}

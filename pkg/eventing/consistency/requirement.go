package consistency

import (
	"slices"
	"time"
)

const (
	// DefaultWait is the Request.Wait for a client that names none. It is far above an event's usual delay,
	// and short for a person.
	DefaultWait = 2 * time.Second
	// MaxWait is the upper limit of Request.Wait. It bounds how long a forged token holds a connection.
	MaxWait = 10 * time.Second
)

// Request is a reader's wish for the freshness of its answer, as the client wrote it.
type Request struct {
	// Tenant is the reader's tenant. A token of another tenant is refused. Empty means
	// eventing.DefaultTenant.
	Tenant string
	// Token is empty, or one or more tokens as for ParseList.
	Token string
	// Mode is empty if the reader named no mode. An empty Mode requires the positions of the token,
	// if there is one.
	Mode Mode
	// StaleIfError prefers a stale answer to an error.
	StaleIfError bool
	// Wait is the longest wait for the projection.
	Wait time.Duration
	// TokenField and ModeField are the field names that errors use.
	TokenField, ModeField string
}

// InvalidRequestError says which field of a Request is invalid, and why.
type InvalidRequestError struct {
	Field, Detail string
}

// Error is for logs.
func (e *InvalidRequestError) Error() string { return e.Field + ": " + e.Detail }

// Requirement is a validated request. The projection meets the zero Requirement in any state.
type Requirement struct {
	mode         Mode
	positions    []Position
	wait         time.Duration
	staleIfError bool
	modeField    string
	// token has the positions of all types in the request's token.
	token      []Position
	tokenField string
}

// Requirement validates q. The result has the token's positions of aggregateType. If valid refuses
// the id of one of these positions, q is invalid. The wait is limited to MaxWait. The error is an
// InvalidRequestError.
func (q Request) Requirement(aggregateType string, valid func(id string) bool) (Requirement, error) {
	if q.Mode != "" && !q.Mode.IsKnown() {
		return Requirement{}, &InvalidRequestError{q.ModeField, "must be minimize-latency, at-least-as-fresh or fully-consistent"}
	}
	r := Requirement{mode: q.Mode, wait: min(q.Wait, MaxWait), staleIfError: q.StaleIfError, modeField: q.ModeField}
	if q.Token == "" {
		if q.Mode == AtLeastAsFresh {
			return Requirement{}, &InvalidRequestError{q.ModeField, "needs a consistency token to be as fresh as"}
		}
		return r, nil
	}
	token, err := ParseList(q.Token)
	switch {
	case err != nil:
		return Requirement{}, &InvalidRequestError{q.TokenField, err.Error()}
	case !sameTenant(token.Tenant, q.Tenant):
		return Requirement{}, &InvalidRequestError{q.TokenField, "is a token of another tenant"}
	}
	r.token, r.tokenField = token.Positions, q.TokenField
	return r.With(aggregateType, valid)
}

// With returns r with the token's positions of a further type. If valid refuses the id of one of
// these positions, the error is an InvalidRequestError.
func (r Requirement) With(aggregateType string, valid func(id string) bool) (Requirement, error) {
	r.positions = slices.Clip(r.positions)
	for _, p := range r.token {
		switch {
		case p.AggregateType != aggregateType:
		case !valid(p.AggregateID):
			return Requirement{}, &InvalidRequestError{r.tokenField, "names no " + aggregateType}
		default:
			r.positions = append(r.positions, p)
		}
	}
	return r, nil
}

// FullyConsistent reports whether the owner's own state is required.
func (r Requirement) FullyConsistent() bool { return r.mode == FullyConsistent }

// RejectFullyConsistent returns an InvalidRequestError for a fully-consistent requirement. It is
// for reads that only the projection can serve.
func (r Requirement) RejectFullyConsistent() error {
	if r.FullyConsistent() {
		return &InvalidRequestError{r.modeField, "fully-consistent is for single reads; a list is at least as fresh as its token"}
	}
	return nil
}

// Positions returns the positions that an answer must have reached.
func (r Requirement) Positions() []Position { return r.positions }

// OfType returns the part of r that concerns one type of aggregate.
func (r Requirement) OfType(aggregateType string) Requirement {
	other := func(p Position) bool { return p.AggregateType != aggregateType }
	if slices.ContainsFunc(r.positions, other) {
		r.positions = slices.DeleteFunc(slices.Clone(r.positions), other)
	}
	return r
}

// ForAggregate returns the part of r that concerns one aggregate.
func (r Requirement) ForAggregate(aggregateType, id string) Requirement {
	all := r.positions
	r.positions = nil
	for i, p := range all {
		if p.AggregateType == aggregateType && p.AggregateID == id {
			r.positions = all[i : i+1]
		}
	}
	return r
}

// Filter returns the part of r that concerns the aggregates for which keep returns true. Aggregates of
// several types may have one id: see OfType.
func (r Requirement) Filter(keep func(id string) bool) Requirement {
	drop := func(p Position) bool { return !keep(p.AggregateID) }
	r.positions = slices.DeleteFunc(slices.Clone(r.positions), drop)
	return r
}

// And returns r with further positions. They are of other aggregates.
func (r Requirement) And(more ...Position) Requirement {
	r.positions = slices.Concat(r.positions, more)
	return r
}

// StaleAggregate is an aggregate that an answer shows in an older state than the reader's token
// requires. Version is the projection's version, or 0 if the projection did not have the aggregate.
// AtLeast is the version that the token requires.
type StaleAggregate struct {
	ID      string `json:"id"`
	Version int64  `json:"version"`
	AtLeast int64  `json:"at_least"`
}

// Unmet returns the positions of r that a projection has not reached. found has the positions of
// the projection.
func (r Requirement) Unmet(found ...Position) (stale []StaleAggregate) {
	at := map[string]Position{}
	for _, p := range found {
		at[p.Key()] = p
	}
	for _, p := range r.positions {
		if has := at[p.Key()]; !p.Reached(has.Epoch, has.Version) {
			stale = append(stale, StaleAggregate{ID: p.AggregateID, Version: has.Version, AtLeast: p.Version})
		}
	}
	return stale
}

// Mode is a reader's choice between latency and freshness, in the words of Zanzibar and
// of the APIs that follow it.
type Mode string

// The modes.
const (
	// MinimizeLatency answers from the projection at once. With a token, the answer names the
	// positions that the projection has not reached.
	MinimizeLatency Mode = "minimize-latency"
	// AtLeastAsFresh accepts no answer that is older than the token requires.
	AtLeastAsFresh Mode = "at-least-as-fresh"
	// FullyConsistent answers from the owner only.
	FullyConsistent Mode = "fully-consistent"
)

// IsKnown reports whether m is one of the modes.
func (m Mode) IsKnown() bool {
	return m == MinimizeLatency || m == AtLeastAsFresh || m == FullyConsistent
}

// Outcome is how a reader's requirement was met.
type Outcome string

// The outcomes.
const (
	Fresh     Outcome = "fresh"     // the projection met the requirement at once
	Waited    Outcome = "waited"    // the projection met the requirement within the wait
	Authority Outcome = "authority" // the owner's state met the requirement
	Stale     Outcome = "stale"     // the requirement was not met, but the reader allows stale data
	Failed    Outcome = "failed"    // the requirement was not met, and the answer is an error
)

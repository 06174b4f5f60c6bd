// Package fresh answers reads of a copy with the freshness that their readers demand.
//
// A [Request] is a reader's wish, over REST and gRPC alike; a validated Request is a
// [Demand]. A [Reader] has the copy read, waits for it if it is behind, has the owner
// asked behind a circuit if the wait is too long, and fails if neither can serve. It
// never returns older data unless the demand allows that.
package fresh

import (
	"slices"
	"time"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

const (
	// DefaultWait is far above an event's usual delay, and short for a person.
	DefaultWait = 2 * time.Second
	// MaxWait bounds how long a forged token holds a connection.
	MaxWait = 10 * time.Second
)

// Request is a reader's wish for the freshness of its answer, as the client wrote it.
type Request struct {
	// Token is a consistency token's text, or empty.
	Token string
	// Mode is empty if the reader named none: the token's presence then decides.
	Mode consistency.Mode
	// StaleIfError prefers a stale answer to none.
	StaleIfError bool
	// Wait is the longest wait for the copy.
	Wait time.Duration
	// TokenField and ModeField are the field names that errors use.
	TokenField, ModeField string
}

// Demand is a validated request. The zero Demand takes the copy's present state.
type Demand struct {
	mode         consistency.Mode
	wanted       []consistency.Position
	wait         time.Duration
	staleIfError bool
	modeField    string
}

// Demand validates q. It keeps the token's positions of one aggregate type and rejects
// invalid ids among them; the wait is at most MaxWait.
func (q Request) Demand(aggregateType string, valid func(id string) bool) (Demand, error) {
	d := Demand{mode: q.Mode, wait: min(q.Wait, MaxWait), staleIfError: q.StaleIfError, modeField: q.ModeField}
	if q.Token == "" {
		if q.Mode == consistency.AtLeastAsFresh {
			return Demand{}, problem.Invalid(q.ModeField, "needs a consistency token to be as fresh as")
		}
		return d, nil
	}
	token, err := consistency.Parse(q.Token)
	switch {
	case err != nil:
		return Demand{}, problem.Invalid(q.TokenField, err.Error())
	case token.Tenant != "": // tenants do not exist so far
		return Demand{}, problem.Invalid(q.TokenField, "is a token of another tenant")
	}
	for _, p := range token.Positions {
		switch {
		case p.AggregateType != aggregateType:
		case !valid(p.AggregateID):
			return Demand{}, problem.Invalid(q.TokenField, "names no "+aggregateType)
		default:
			d.wanted = append(d.wanted, p)
		}
	}
	return d, nil
}

// FullyConsistent reports whether the owner's own state is demanded.
func (d Demand) FullyConsistent() bool { return d.mode == consistency.FullyConsistent }

// OfACopy rejects a fully-consistent demand, for reads that are served from the copy
// only.
func (d Demand) OfACopy() error {
	if d.FullyConsistent() {
		return problem.Invalid(d.modeField, "fully-consistent is for single reads; a list is at least as fresh as its token")
	}
	return nil
}

// Wanted are the positions that the answer must have reached.
func (d Demand) Wanted() []consistency.Position { return d.wanted }

// About is the part of d that concerns one aggregate.
func (d Demand) About(id string) Demand {
	all := d.wanted
	d.wanted = nil
	for i, p := range all {
		if p.AggregateID == id {
			d.wanted = all[i : i+1]
		}
	}
	return d
}

// Only is the part of d that concerns the aggregates that keep accepts.
func (d Demand) Only(keep func(id string) bool) Demand {
	drop := func(p consistency.Position) bool { return !keep(p.AggregateID) }
	d.wanted = slices.DeleteFunc(slices.Clone(d.wanted), drop)
	return d
}

// Lag is an aggregate that an answer shows in an older state than its reader's token
// demands. The copy was at Version, which is 0 if it did not have the aggregate.
type Lag struct {
	ID      string `json:"id"`
	Version int64  `json:"version"`
	AtLeast int64  `json:"at_least"`
}

// Lags returns the positions of d that a copy with the positions in found has not
// reached.
func (d Demand) Lags(found ...consistency.Position) (lags []Lag) {
	at := map[string]consistency.Position{}
	for _, p := range found {
		at[p.AggregateID] = p
	}
	for _, p := range d.wanted {
		if has := at[p.AggregateID]; !p.Reached(has.Epoch, has.Version) {
			lags = append(lags, Lag{ID: p.AggregateID, Version: has.Version, AtLeast: p.Version})
		}
	}
	return lags
}

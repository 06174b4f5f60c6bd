// Package history is test support. It has one format for the events of a test run, from
// the owner's commit to a reader's answer, and one checker, [Check], that compares them
// with the promises of docs/promises.md.
//
// A history is a list of records. The records of one aggregate and one kind are in the order in
// which they occurred. Records of different kinds may be in any order, with two exceptions: [Check]
// needs the order of Send and Acknowledge records, and the order of Effect and Forget records. On
// disk a history is JSON lines, so that several processes can append to one [Log] and a person can
// read it. A test records only what it observes. [Check] checks each promise with the records that
// are there.
package history

import "time"

// Kind says what a record is about.
type Kind string

// The owner's side.
const (
	// Write is an event that the owner has committed. The Write records of an aggregate are in the
	// order of the commits.
	Write Kind = "write"
	// Answer is a write that was confirmed to a client as committed.
	Answer Kind = "answer"
	// Lost is a write that a failover or a restore took from the owner.
	Lost Kind = "lost"
	// Orphan is an event that was committed, but not marked as published, when a relay was killed.
	// Lease is the lease that the event was under, or empty if it was under none.
	Orphan Kind = "orphan"
	// Owner is the owner's state at the end.
	Owner Kind = "owner"
)

// The broker's side.
const (
	// Send is an event in a publish request. The test records it before the request leaves. The
	// Send records of one request are contiguous, in the order of the events in the request.
	Send Kind = "send"
	// Acknowledge is an event that the broker has acknowledged to the relay. It is recorded before
	// the relay acts on the acknowledgement.
	Acknowledge Kind = "acknowledge"
	// Publish is an event that the broker has taken. The records are in the broker's order.
	Publish Kind = "publish"
	// Deliver is an event that a consumer was given.
	Deliver Kind = "deliver"
)

// The read model's side.
const (
	// Apply is a version that a row of the read model has taken on. The records are in the order of
	// the row's commits.
	Apply Kind = "apply"
	// Effect is an event that was settled together with its effects.
	Effect Kind = "effect"
	// Forget is a settled event. The consumer no longer knows that the event was settled.
	Forget Kind = "forget"
	// Report is a divergence of the aggregate that the consumer has reported.
	Report Kind = "report"
	// Read is an answer to a reader. The reader's token demands the version Least.
	Read Kind = "read"
	// Copy is the read model's state at the end.
	Copy Kind = "copy"
)

// Change is the effect of an Apply on its row. It is empty if the effect is unknown.
type Change string

// The changes.
const (
	Created Change = "created" // an aggregate's first version
	Delta   Change = "delta"   // the difference to the direct predecessor
	Whole   Change = "whole"   // the whole state of an aggregate that may return from its deletion
	Deleted Change = "deleted" // a tombstone
	Repair  Change = "repair"  // the owner's whole state, by a repair
)

// Outcome is how a Read ended.
type Outcome string

// The outcomes. If a reader allows an answer that is not fresh, it may get Stale or Absent, and the
// answer says so.
const (
	Shown       Outcome = "shown"
	Stale       Outcome = "stale"
	Absent      Outcome = "absent"
	Unavailable Outcome = "unavailable"
	// Unexpected is an answer that is not documented.
	Unexpected Outcome = "unexpected"
)

// Record is one thing that happened. Every kind of record has Aggregate. A record about a version
// has Epoch and Version. A record about an event has the id of the event in Event.
type Record struct {
	Kind      Kind      `json:"kind"`
	At        time.Time `json:"at,omitzero"`
	Process   string    `json:"process,omitempty"`
	Aggregate string    `json:"aggregate"`
	Epoch     int64     `json:"epoch,omitempty"`
	Version   int64     `json:"version,omitempty"`
	Event     string    `json:"event,omitempty"`
	// Token is the token that the writer received, or that the reader sent.
	Token string `json:"token,omitempty"`
	// Request names the publish request of a Send.
	Request string `json:"request,omitempty"`
	// Lease is the lease of an Orphan.
	Lease  string `json:"lease,omitempty"`
	Change Change `json:"change,omitempty"`
	// State is the aggregate's content as a string. Any form will do in which equal contents are
	// equal strings. State is empty if the content was not recorded.
	State string `json:"state,omitempty"`
	// Least is the version that a Read demanded.
	Least int64 `json:"least,omitempty"`
	// Mode is the mode of a Read. It is empty if the answer had to be at least as fresh as the token.
	Mode    string  `json:"mode,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	// Note is for a person.
	Note string `json:"note,omitempty"`
}

// position is a version in an epoch. It orders the versions of a row of the read model.
type position struct{ epoch, version int64 }

func (r Record) position() position { return position{r.Epoch, r.Version} }

func (p position) after(q position) bool {
	return p.epoch > q.epoch || p.epoch == q.epoch && p.version > q.version
}

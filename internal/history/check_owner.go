package history

import (
	"fmt"
	"time"
)

// orphanLimit is the promised time for publishing the events of a killed relay. The lease of such
// an event ends after 20 s. An idle relay then finds the event within 5 s.
const orphanLimit = 30 * time.Second

// committed checks P1. An event that was sent, published, delivered, settled or applied must have
// been committed. A write that was confirmed to a client must have been committed, too. Each
// version has one event, and follows the version before, unless the owner has lost commits. At the
// end, the version of the owner is the version of its last write.
func committed(l life) (found []Violation) {
	found, known, last := versions(l)
	written := l.byEvent(Write)
	for _, r := range l.of(Send, Publish, Deliver, Effect, Apply) {
		ofOwner := r.Kind == Apply && r.Event == ""
		if w, ok := written[r.Event]; !ofOwner && (!ok || w.position() != r.position()) {
			found = append(found, breaks("P1", "an event that was never committed", r))
		}
	}
	for _, r := range l.of(Answer) {
		if !known[r.position()] {
			found = append(found, breaks("P1", "the owner lacks a write that it had confirmed to a client", r))
		}
	}
	for _, r := range l.of(Owner) {
		if last.position() != r.position() {
			found = append(found, breaks("P1", "the owner's version is not that of its last event", last, r))
		}
	}
	return found
}

// versions checks the owner's own writes. known has the positions that were ever written. last is
// the last write that the owner still has.
func versions(l life) (found []Violation, known map[position]bool, last Record) {
	lost, before := l.byEvent(Lost), l.predecessors()
	known, kept := map[position]bool{}, map[position]Record{}
	for _, w := range l.of(Write) {
		if _, ok := before[w.Event]; !ok && w.Version != 1 {
			found = append(found, breaks("P1", "a version without the one before it", w))
		}
		known[w.position()] = true
		if _, ok := lost[w.Event]; ok {
			continue
		}
		if other, ok := kept[w.position()]; ok {
			found = append(found, breaks("P1", "two events of one version", other, w))
		}
		kept[w.position()], last = w, w
	}
	return found, known, last
}

// delivered checks P2: each event reached the broker. If a kill of a relay delayed the event, the
// event reached the broker within orphanLimit after the kill. Events that the owner has lost need
// not reach the broker.
func delivered(l life) (found []Violation) {
	published, lost := l.byEvent(Publish), l.byEvent(Lost)
	for _, w := range l.of(Write) {
		_, arrived := published[w.Event]
		if _, gone := lost[w.Event]; !arrived && !gone {
			found = append(found, breaks("P2", "a committed event that was never published", w))
		}
	}
	for _, o := range l.orphans() {
		if p, ok := published[o.Event]; ok && p.At.Sub(o.At) > orphanLimit {
			found = append(found, breaks("P2", fmt.Sprintf("an event waited %s behind a kill", p.At.Sub(o.At)), o, p))
		}
	}
	return found
}

// orphans returns, for each event, the kill at which the event's wait starts. This is the first
// kill that found the event under its last lease. If a later kill finds the event under another
// lease, a living relay has claimed the event in between. Then the wait starts again at the later
// kill.
func (l life) orphans() map[string]Record {
	since := map[string]Record{}
	for _, o := range l.of(Orphan) {
		if s, known := since[o.Event]; !known || s.Lease != o.Lease {
			since[o.Event] = o
		}
	}
	return since
}

// ordered checks P3 for subscribers: the broker takes an event for the first time only after the
// event's predecessor.
func ordered(l life) (found []Violation) {
	before, taken := l.predecessors(), map[string]bool{}
	for _, r := range l.of(Publish) {
		if p, ok := before[r.Event]; ok && !taken[r.Event] && !taken[p.Event] {
			found = append(found, breaks("P3", "published before its predecessor", p, r))
		}
		taken[r.Event] = true
	}
	return found
}

// sentInOrder checks P3 for relays. An event is sent in the same request as its predecessor,
// directly after it, or is sent after the predecessor's acknowledgement.
func sentInOrder(l life) (found []Violation) {
	before, acknowledged := l.predecessors(), map[string]bool{}
	var previous Record
	for _, r := range l.of(Send, Acknowledge) {
		if r.Kind == Acknowledge {
			acknowledged[r.Event] = true
			continue
		}
		p, follows := before[r.Event]
		behind := previous.Event == p.Event && previous.Request == r.Request
		if follows && !behind && !acknowledged[p.Event] {
			found = append(found, breaks("P3", "sent without its predecessor, which is not acknowledged", p, r))
		}
		previous = r
	}
	return found
}

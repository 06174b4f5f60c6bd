package inbox_test

import (
	"cmp"
	"errors"
	"slices"

	"example.com/lockstep/pkg/eventing/inbox"
)

// steps has everything that can happen to a world. A step calls then once for each of its ways.
var steps = []struct {
	name string
	take func(world, then)
}{
	{"the owner writes", world.write},
	{"the owner fails over", world.failOver},
	{"an epoch begins", world.beginEpoch},
	{"time passes", world.pause},
	{"an event is delivered", world.deliver},
	{"the owner is asked", world.ask},
	{"an answer arrives", world.arrive},
	{"a process ends", world.crash},
	{"the topic is replayed", world.replay},
}

// then receives the world after a step, the step's effect, and its words as a format with arguments.
type then func(next world, did effect, words string, about ...any)

// effect is the outcome of Decide for the event judged, or of Adopt, Advance or Replace for the answer took.
// The events lost and dead were given up.
type effect struct {
	outcome            inbox.Outcome
	judged, lost, dead ref
	took               answer
}

func (w world) write(then then) {
	if w.left.writes == 0 || w.owner.deleted && !w.puts {
		return
	}
	w.left.writes--
	w.count++
	w.pass(1)
	last := w.owner
	for _, deletes := range []bool{false, true} {
		if deletes && (last.event == 0 || last.deleted) {
			continue
		}
		e := written{epoch: last.epoch, version: w.get(last.event).version + 1, before: last.event, at: w.now, deletes: deletes}
		w.events[w.count-1], w.owner = e, state{w.count, e.epoch, deletes}
		then(w, effect{}, "the owner writes event %d at %d s: epoch %d, version %d, deletion %t", w.count, e.at, e.epoch, e.version, deletes)
	}
}

// failOver loses the last events, or none.
func (w world) failOver(then then) {
	if w.left.failovers == 0 {
		return
	}
	w.left.failovers--
	w.pass(1)
	w.former, w.failed = w.owner, w.now
	for known := true; known; {
		then(w, effect{}, "the owner fails over at %d s, and its last event is event %d", w.now, w.owner.event)
		known = w.owner.event != 0
		w.owner.event = w.get(w.owner.event).before
		w.owner.deleted = w.get(w.owner.event).deletes
	}
}

func (w world) beginEpoch(then then) {
	if w.left.epochs > 0 {
		w.left.epochs--
		w.owner.epoch++
		then(w, effect{}, "an operator begins epoch %d", w.owner.epoch)
	}
}

func (w world) pause(then then) {
	if w.left.pauses > 0 {
		w.left.pauses--
		w.pass(28)
		then(w, effect{}, "time passes until %d s", w.now)
	}
}

// replay delivers all events again, to an inbox that has forgotten them.
func (w world) replay(then then) {
	if w.left.replays > 0 {
		w.left.replays--
		for i := range w.events {
			w.events[i].settled = false
		}
		then(w, effect{}, "the topic is replayed, and the inbox has forgotten its events")
	}
}

// deliver settles an event, or asks the owner because of it.
func (w world) deliver(then then) {
	for r := ref(1); r <= w.count; r++ {
		if w.get(r).settled {
			continue
		}
		next := w
		did := next.decide(r)
		if next.get(r).settled {
			then(next, did, "event %d is delivered", r)
		} else if !slices.ContainsFunc(w.answers[:], func(a answer) bool { return a.event == r }) {
			w.fetch(answer{purpose: repair, event: r}, did, then)
		}
	}
}

// decide settles the event r, unless the owner must be asked.
func (w *world) decide(r ref) effect {
	o := inbox.Decide(w.position(w.row), w.change(r))
	w.events[r-1].settled = o == inbox.Applied || o == inbox.Stale
	if o == inbox.Applied {
		w.row = w.after(r)
	}
	return effect{judged: r, outcome: o}
}

// ask asks the owner for a reader, a backfill or a reconcile.
func (w world) ask(then then) {
	if w.left.questions > 0 {
		w.left.questions--
		for _, why := range []purpose{read, backfill, reconcile} {
			w.fetch(answer{purpose: why, seen: w.row}, effect{}, then)
		}
	}
}

// fetch puts the owner's answer on its way, which any of its servers may give.
func (w world) fetch(a answer, did effect, then then) {
	free := slices.Index(w.answers[:], answer{})
	if free < 0 {
		return
	}
	from := func(server string, owner state, asOf int16) {
		next := w
		a.owner, a.asOf = owner, asOf
		next.answers[free] = a
		slices.SortFunc(next.answers[:], answer.compare)
		then(next, did, "a %v asks (event %d, row of event %d), and a %s answers: event %d, epoch %d, deleted %t, as of %d s",
			a.purpose, a.event, w.row.event, server, owner.event, owner.epoch, owner.deleted, asOf)
	}
	from("primary", w.owner, w.now)
	if w.former != (state{}) {
		from("former primary", w.former, w.now)
	}
	if last := w.get(w.owner.event); w.owner.event != 0 {
		from("replica without the last event", state{last.before, last.epoch, w.get(last.before).deletes}, last.at-1)
		if last.epoch < w.owner.epoch {
			from("replica without the present epoch", w.after(w.owner.event), last.at)
		}
	}
}

// arrive is what package projection does with an answer.
func (w world) arrive(then then) {
	for i, a := range w.answers {
		if a != (answer{}) {
			next := w.without(i)
			did := next.take(a)
			then(next, did, "the answer to the %v of event %d arrives: event %d, epoch %d, as of %d s", a.purpose, a.event, a.owner.event, a.owner.epoch, a.asOf)
		}
	}
}

// crash ends a process that has an answer. One that ends between a commit and its ack changes nothing here.
func (w world) crash(then then) {
	for i, a := range w.answers {
		if a != (answer{}) {
			then(w.without(i), effect{}, "the process of the %v of event %d ends", a.purpose, a.event)
		}
	}
}

func (w world) without(i int) world {
	w.answers[i] = answer{}
	slices.SortFunc(w.answers[:], answer.compare)
	return w
}

// take writes an answer, and settles the event that is lost or dead by it.
func (w *world) take(a answer) effect {
	did := effect{took: a}
	asOf := w.time(a.asOf)
	if about := cmp.Or(a.event, a.seen.event); a.owner.event == 0 {
		switch {
		case a.purpose == read || a.purpose == backfill || about == 0 || inbox.MayLag(w.event(about), asOf):
			return did
		case a.purpose == repair:
			did.dead = a.event
			w.events[a.event-1].settled = true
			return did
		}
		a.owner = state{a.seen.event, a.seen.epoch, true}
	}
	switch row, c := w.position(w.row), w.snapshot(a.owner); a.purpose {
	case backfill:
		did.outcome = inbox.Advance(row, c, asOf)
	case reconcile:
		did.outcome = inbox.Replace(w.position(a.seen), row, c, asOf)
	default:
		did.outcome = inbox.Adopt(row, c, asOf)
	}
	if did.outcome == inbox.Applied || did.outcome == inbox.Diverged {
		w.row = a.owner
	}
	if a.purpose == repair && errors.Is(inbox.Has(w.position(a.owner), w.event(a.event), asOf), inbox.ErrLost) {
		did.lost = a.event
		w.events[a.event-1].settled = true
	}
	return did
}

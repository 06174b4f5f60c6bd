package inbox_test

import (
	"cmp"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
)

// worldStart is the time 0 of all worlds, which lies back, so that no event is from the future.
var worldStart = time.Now().Add(-time.Hour).Truncate(time.Second)

// world is one aggregate at one moment: its events, its owner, its row in a read model, and the owner's
// answers that are on their way. The owner's clock never goes back: see "Another history" in the package doc.
type world struct {
	// puts says that each event but a deletion carries the whole state, and may bring the aggregate back.
	puts   bool
	events [5]written
	count  ref
	// owner is the state of the primary, and former that of a former primary while it answers.
	owner, former, row state
	// now, and the time of the last failover, in seconds.
	now, failed int16
	answers     [2]answer
	left        limits
}

// limits are how often some steps may still happen.
type limits struct{ writes, failovers, epochs, pauses, questions, replays int8 }

// ref is an event by its number, from 1. 0 is no event.
type ref int8

// written is an event that the owner has committed. It may be delivered at any time until it is settled:
// done, lost or dead.
type written struct {
	epoch, version   int8
	before           ref
	at               int16
	deletes, settled bool
}

// state is the state of the aggregate after event, or of an unknown aggregate.
type state struct {
	event   ref
	epoch   int8
	deleted bool
}

// purpose is why the owner is asked. Its zero value is no question.
type purpose int8

const (
	repair purpose = iota + 1
	read
	backfill
	reconcile
)

func (p purpose) String() string {
	return [...]string{"", "repair", "read", "backfill", "reconcile"}[p]
}

// answer is the owner's state as of asOf, for the repair of event, or for the row that was seen to differ.
type answer struct {
	purpose purpose
	event   ref
	seen    state
	owner   state
	asOf    int16
}

// compare orders the answers of a world, so that their order makes no other world.
func (a answer) compare(b answer) int {
	return cmp.Or(cmp.Compare(b.purpose, a.purpose), cmp.Compare(b.event, a.event), cmp.Compare(b.owner.event, a.owner.event),
		cmp.Compare(b.owner.epoch, a.owner.epoch), cmp.Compare(b.asOf, a.asOf))
}

// pass lets time pass. A former primary answers for less than 30 seconds.
func (w *world) pass(seconds int16) {
	if w.now += seconds; w.now-w.failed >= 30 {
		w.former = state{}
	}
}

// get returns the event r, or the zero event.
func (w world) get(r ref) (e written) {
	if r > 0 {
		e = w.events[r-1]
	}
	return e
}

// includes reports whether the history that ends with the event last includes the event r.
func (w world) includes(last, r ref) bool {
	for last != r && last != 0 {
		last = w.get(last).before
	}
	return last == r
}

// has reports whether r is in the owner's present history.
func (w world) has(r ref) bool { return w.includes(w.owner.event, r) }

// after returns the state after the event r.
func (w world) after(r ref) state { return state{r, w.get(r).epoch, w.get(r).deletes} }

func (w world) event(r ref) eventing.Event {
	e := w.get(r)
	return eventing.Event{
		ID: uuid.UUID{byte(r)}, AggregateType: "item", AggregateID: "1", Epoch: int64(e.epoch), Version: int64(e.version),
		PreviousEventID: uuid.UUID{byte(e.before)}, OccurredAt: w.time(e.at),
	}
}

func (w world) time(at int16) time.Time { return worldStart.Add(time.Duration(at) * time.Second) }

// change returns the event r as a consumer decodes it.
func (w world) change(r ref) inbox.Change {
	c := inbox.Change{Kind: inbox.Updated, Event: w.event(r)}
	switch e := w.get(r); {
	case e.deletes:
		c.Kind = inbox.Deleted
	case w.puts:
		c.Kind = inbox.Put
	case e.before == 0:
		c.Kind = inbox.Created
	}
	return c
}

// snapshot returns an owner's state as a change. The owner adds its present epoch to the row.
func (w world) snapshot(s state) inbox.Change {
	c := inbox.Change{Kind: inbox.Snapshot, Event: w.event(s.event)}
	c.Event.Epoch = int64(s.epoch)
	switch {
	case s.deleted:
		c.Kind = inbox.Deleted
	case w.puts:
		c.Kind = inbox.Put
	}
	return c
}

func (w world) position(s state) inbox.Position {
	if s.event == 0 {
		return inbox.Position{}
	}
	e := w.event(s.event)
	return inbox.Position{Epoch: int64(s.epoch), Version: e.Version, Deleted: s.deleted, EventID: e.ID, At: e.OccurredAt}
}

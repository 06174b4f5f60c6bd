package inbox

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	records "example.com/lockstep/internal/history"
	"example.com/lockstep/pkg/eventing"
)

// life is the history of one item at its owner: state n is that after event n.
type life struct {
	events []eventing.Event
	states []item
	// lost are events that the owner no longer has, and fork is how many states there
	// were when it lost them; 0 where it lost none.
	lost []eventing.Event
	fork int
	// lostStates are those after each of lost.
	lostStates []item
	// answers are the states in which the owner had the item, in the order of their times:
	// those after events, also lost ones, and those after a restore or a new epoch.
	answers []answer
}

// answer is what the owner says of an item from a time on.
type answer struct {
	from time.Time
	item item
	// lost says that a failover has taken it back, or that it is the state right after one.
	lost bool
}

// lose takes the owner back to its state after some of its events: it fails over, and no
// event reports that. The next events reuse the versions.
func (l *life) lose(after int) {
	l.lost, l.fork = slices.Clone(l.events[after:]), after
	l.lostStates = slices.Clone(l.states[after:])
	l.events, l.states = l.events[:after:after], l.states[:after:after]
	for i := after; i < len(l.answers); i++ {
		l.answers[i].lost = true
	}
	l.answers = append(l.answers, answer{from: l.between(), item: l.last(), lost: true})
}

// written are the events in the order in which they were committed and published,
// and those that the owner lost.
func (l *life) written() (happened []records.Record) {
	add := func(events []eventing.Event, states []item) {
		for i, e := range events {
			w := recordOf(records.Write, e)
			w.State = states[i].String()
			happened = append(happened, w, recordOf(records.Publish, e))
		}
	}
	add(l.events[:l.fork], l.states[:l.fork])
	add(l.lost, l.lostStates)
	add(l.events[l.fork:], l.states[l.fork:])
	for _, e := range l.lost {
		happened = append(happened, recordOf(records.Lost, e))
	}
	return happened
}

// all are the events that were published.
func (l *life) all() []eventing.Event { return append(slices.Clone(l.events), l.lost...) }

func (l *life) last() item { return l.states[len(l.states)-1] }

// now is what the owner says at present; before the first event it is the zero item.
func (l *life) now() item {
	if len(l.answers) == 0 {
		return item{Epoch: 1}
	}
	return l.answers[len(l.answers)-1].item
}

// next is the time of the next event, and between is a time shortly before it.
func (l *life) next() time.Time {
	return epochStart.Add(time.Duration(len(l.states)+2*len(l.lost)) * time.Second)
}

func (l *life) between() time.Time { return l.next().Add(-time.Second / 2) }

// happen adds an event that takes the item to its next version.
func (l *life) happen(t testing.TB, id, name string, p itemPayload) {
	t.Helper()
	before := l.now()
	e := event(id, before.Version+1)
	e.AggregateType, e.Type, e.Epoch, e.PreviousEventID, e.OccurredAt = "item", name, before.Epoch, before.EventID, l.next()
	var err error
	if e.Payload, err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	c, err := decodeItem(e)
	if err != nil {
		t.Fatal(err)
	}
	c.Event = e
	before.bare = false
	after := items{}.Apply(before, c)
	l.events, l.states = append(l.events, e), append(l.states, after)
	l.answers = append(l.answers, answer{from: e.OccurredAt, item: after})
}

// begin takes the item back to one of its states, or leaves it in its last one, in a new
// epoch. No event reports that: the next event is the first of the epoch.
func (l *life) begin(to item) {
	to.Epoch, to.bare = l.now().Epoch+1, true
	l.answers = append(l.answers, answer{from: l.between(), item: to})
}

// epochStart is when all lives begin. An event is a second after the one before.
var epochStart = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// since is a state that the owner had at the time of e or later. By then it has lost its
// lost events.
func (l *life) since(e eventing.Event, pick func(n int) int) item {
	var later []item
	for _, a := range l.answers {
		if !a.lost && !a.from.Before(e.OccurredAt) {
			later = append(later, a.item)
		}
	}
	return later[pick(len(later))]
}

// at is the state that the owner had at a time, if it had one.
func (l *life) at(when time.Time) (found item, ok bool) {
	for _, a := range l.answers {
		if !a.from.After(when) {
			found, ok = a.item, true
		}
	}
	return found, ok
}

package relaymodel

import (
	"strconv"
	"strings"
)

// step is the name of a step. {r} and {e} in text stand for its relay and its event, which count from 1
// in the printed text. part names the part of a statement, such as ": sent" or ": the answer is lost".
// It is empty if the step is the whole statement.
type step struct {
	text         string
	relay, event int
	part         string
}

func (p step) String() string {
	return strings.NewReplacer("{r}", strconv.Itoa(p.relay+1), "{e}", strconv.Itoa(p.event+1)).Replace(p.text) + p.part
}

// taker is a function that gets the steps of a state, one a call. do takes the step. fair is true if the
// step is taken in the end, unless something else makes it impossible. The other steps are faults and
// new transactions, which need not be taken at all.
type taker func(fair bool, p step, do func(*state))

// process is a source of steps: a goroutine, a transaction, or time. steps passes the steps that may
// come next in the state s, for the event or the relay with the number of. A fair continuation takes up
// to atOnce of these steps in a round.
type process struct {
	steps  func(s *state, to taker, of int)
	atOnce int
}

// These are the processes, in the order in which a fair continuation takes their steps. Those of events
// come first, because an open transaction ends before time passes. The settler settles all results
// before the next claim, also those of second settlements.
var (
	ofEvents = []process{{stepsOfTransaction, 1}, {stepsOfOperator, 1}, {stepsOfLocks, 1}, {stepsOfPurge, 1}}
	ofRelays = []process{
		{stepsOfHeartbeats, 1}, {stepsOfClaims, 1}, {stepsOfScans, 1}, {stepsOfRetries, 1}, {stepsOfTurns, 1}, {stepsOfTopic, 1},
		{stepsOfPublishers, 1}, {stepsOfSettler, 6 * mostEvents}, {stepsOfEnd, 1}, {stepsOfProcess, 1},
	}
	ofTime = []process{{stepsOfLease, 1}}
)

// processes calls each with every process and every event or relay of the process.
func (s *state) processes(each func(p process, of int)) {
	for _, p := range ofEvents {
		for t := range s.in.events {
			each(p, t)
		}
	}
	for _, p := range ofRelays {
		for id := range s.relays {
			each(p, id)
		}
	}
	for _, p := range ofTime {
		for t := range s.in.events {
			each(p, t)
		}
	}
}

// steps passes all steps of the state to the taker.
func (s *state) steps(to taker) {
	s.processes(func(p process, of int) { p.steps(s, to, of) })
	s.failovers(to)
}

// fault passes a step that uses up one of left.faults, if kind is true and one is left.
func (s *state) fault(kind bool, to taker, p step, do func(*state)) {
	if kind && s.left.faults > 0 {
		to(false, p, func(n *state) { n.left.faults--; do(n) })
	}
}

// statement is a statement of a relay, as a list of steps. slow is true if each phase is a step of its
// own. parts has, by phase, the function that ends the phase, or nil. answer and lose end the statement
// with its answer or without one.
type statement struct {
	name         step
	slow         bool
	parts        [executed]func(*state)
	answer, lose func(*state)
}

// pass passes the next steps of the statement, which is in the phase at.
func (q statement) pass(s *state, to taker, at phase) {
	named := func(part string) step { p := q.name; p.part = part; return p }
	lost := s.in.kinds.lostAnswers
	switch {
	case at == executed:
		to(true, named(": the answer"), q.answer)
		s.fault(lost, to, named(": the answer is lost"), q.lose)
	case q.slow:
		to(true, named([...]string{": sent", ": begun", ": executed"}[at]), q.parts[at])
	default:
		all := func(n *state) {
			for _, part := range q.parts {
				if part != nil {
					part(n)
				}
			}
		}
		to(true, q.name, func(n *state) { all(n); q.answer(n) })
		s.fault(lost, to, named(", and gets no answer"), func(n *state) { all(n); q.lose(n) })
	}
}

// stepsOfTransaction has the steps of the process that writes event t, and those of its relay while the
// relay does not know the outcome.
func stepsOfTransaction(s *state, to taker, t int) {
	e, home := &s.events[t], s.in.home[t]
	named := func(text string) step { return step{text: text, relay: home, event: t} }
	switch e.transaction {
	case notBegun:
		if s.mayBegin(t) {
			to(false, named("transaction {e} begins, in the process of relay {r}"), func(n *state) { n.begin(t) })
		}
	case begun:
		if s.mayWrite(t) {
			to(false, named("transaction {e} writes its event"), func(n *state) { n.write(t) })
		}
	case written:
		to(true, named("transaction {e} commits"), func(n *state) { n.finish(t, true) })
		if s.relays[home].state == gone {
			to(false, named("transaction {e} rolls back, as its process is gone"), func(n *state) { n.finish(t, false) })
		} else {
			s.fault(s.in.kinds.rollbacks, to, named("transaction {e} rolls back"), func(n *state) { n.finish(t, false) })
		}
	case committing:
		to(true, named("transaction {e} knows that it has committed"), func(n *state) { n.events[t].transaction = ended; n.accept(t) })
		s.fault(s.in.kinds.lostAnswers && e.handover, to, named("transaction {e} gets no answer to its COMMIT"),
			func(n *state) { n.events[t].transaction = ended })
	case rollingBack:
		to(true, named("transaction {e} knows that it has failed"), func(n *state) { n.events[t].transaction = ended })
	case ended:
		if s.mayHandBack(t) {
			to(true, named("relay {r} looks for event {e}"), func(n *state) { n.handBack(t) })
		}
	}
}

// stepsOfLease has the steps in which time ends the lease of event t, or makes its handover too old. A
// lease can end if no relay renews it. A lease that its relay renews, and the lease of a handover with a
// transaction that still runs, end only in a stall. A lease does not end while a claim that has taken it
// is on its way, because a claim's time limit is shorter.
func stepsOfLease(s *state, to taker, t int) {
	e, w := &s.events[t], s.db.rows[t]
	owner := s.in.home[t]
	if w.leased() {
		owner = int(w.token) - 1
	}
	over := func(text string) step { return step{text: text, relay: owner, event: t} }
	if !w.leased() && (!e.handover || e.expired) {
		if e.handover && !e.leaseOver {
			to(true, over("the handover of event {e} is too old"), func(n *state) { n.events[t].leaseOver = true; n.handBack(t) })
		}
		return
	}
	switch {
	case has(s.relays[owner].claim.heads|s.relays[owner].page.heads|s.relays[owner].turn.heads|s.relays[owner].topic.probe.heads, t):
	case !s.keeps(owner, t):
		to(true, over("the lease of relay {r} for event {e} is over"), func(n *state) { n.expire(t) })
	case s.left.stalls > 0:
		to(false, over("the lease of relay {r} for event {e} is over, in a stall"), func(n *state) { n.left.stalls--; n.expire(t) })
	}
}

// keeps reports whether relay id renews its lease for event t, or waits for the transaction that writes
// the event. A relay settles an answered batch long before the lease is over. It cannot renew a lease if
// another session has locked the row.
func (s *state) keeps(id, t int) bool {
	b, e := &s.relays[id].batches[t], &s.events[t]
	return b.exists && !has(s.locked, t) || e.handover && s.in.home[t] == id && e.transaction != ended
}

package inbox_test

import "example.com/lockstep/pkg/eventing/inbox"

// promises are checked at each step from a world w to the world next.
var promises = []struct {
	name  string
	keeps func(w, next world, did effect) bool
}{
	{"P5 once: an event is applied to a row that lacks it, and an owner's state to a row that differs", appliesOnce},
	{"P6 forward: a row of the present history keeps all that it has, and is deleted if its event deletes", movesForward},
	{"P6 complete: a row of the present history has each event of the owner that is settled", isComplete},
	{"P7 gapless: a difference is applied on its direct predecessor, and nothing that fits is a gap", isGapless},
	{"P7 gapless: only what the owner has lost is lost, or of another history", losesNoOther},
	{"P7 gapless: another history is reported where versions or times show it", reportsLosses},
	{"P8 fresh: an owner's answer leaves no older row", isFresh},
	{"P9 poison: an event that the owner has is no dead letter", buriesNoOther},
	{"P10 converge: a backfill takes a row back only to a later change, and a reconcile takes no row that has moved", leavesRows},
}

func appliesOnce(w, next world, did effect) bool {
	return did.outcome != inbox.Applied || did.took.purpose == reconcile ||
		next.row != w.row && (did.judged == 0 || !w.includes(w.row.event, did.judged))
}

func movesForward(w, next world, _ effect) bool {
	row := next.row
	return row.epoch >= w.row.epoch && (!next.has(w.row.event) || next.includes(row.event, w.row.event)) &&
		(!next.has(row.event) || row.deleted == next.get(row.event).deletes)
}

func isComplete(_, next world, _ effect) bool {
	for r := ref(1); r <= next.count; r++ {
		if next.get(r).settled && next.has(r) && next.has(next.row.event) && !next.includes(next.row.event, r) {
			return false
		}
	}
	return true
}

func isGapless(w, _ world, did effect) bool {
	if did.judged == 0 {
		return true
	}
	whole := w.get(did.judged).deletes || w.puts
	before := w.after(w.get(did.judged).before)
	before.epoch = w.get(did.judged).epoch
	fits := whole || w.row == before || w.row.event == 0 && before.event == 0
	return fits && did.outcome != inbox.Gap || !fits && did.outcome != inbox.Applied
}

func losesNoOther(w, next world, did effect) bool {
	if did.lost != 0 && next.has(did.lost) {
		return false
	}
	if did.outcome != inbox.Diverged || !next.has(w.row.event) {
		return true
	}
	return did.judged != 0 && !next.has(did.judged) && w.get(did.judged).epoch == w.row.epoch
}

func reportsLosses(w, next world, did effect) bool {
	row, to := w.get(w.row.event), w.get(next.row.event)
	switch e := w.get(did.judged); {
	case did.outcome == inbox.Diverged || w.row.event == 0:
		return true
	case did.judged == 0: // the owner's state replaces no other history of an epoch without a report
		return next.row.event == w.row.event || next.row.epoch > w.row.epoch || to.version > row.version && (w.puts || !w.row.deleted || next.row.deleted)
	case e.epoch != w.row.epoch || w.includes(did.judged, w.row.event) || w.includes(w.row.event, did.judged):
		return true
	case e.version < row.version:
		return e.at < row.at
	default:
		return e.version > row.version+1 && e.at > row.at
	}
}

func isFresh(_, next world, did effect) bool {
	a, row := did.took, next.row
	return a.owner.event == 0 || a.purpose == reconcile ||
		row.epoch >= a.owner.epoch && (!next.has(a.owner.event) || !next.has(row.event) || next.includes(row.event, a.owner.event))
}

func buriesNoOther(_, next world, did effect) bool { return did.dead == 0 || !next.has(did.dead) }

func leavesRows(w, next world, did effect) bool {
	row, to := w.get(w.row.event), w.get(did.took.owner.event)
	switch a := did.took; {
	case a.purpose == reconcile && a.seen != w.row:
		return next.row == w.row
	case a.purpose == backfill && a.owner.epoch == w.row.epoch && to.version < row.version:
		return (next.row != w.row) == (to.at > row.at)
	}
	return true
}

// ends checks P9 and P10: if all servers answer, each event is settled at last, and the row becomes its
// owner's. The events of the present history come first, and then the others. If the owner has written since it lost
// events, that is enough. Otherwise a reconcile follows.
func (w world) ends() bool {
	w.answers = [len(w.answers)]answer{}
	w.pass(100)
	for _, present := range []bool{true, false} {
		for r := ref(1); r <= w.count; r++ {
			if w.has(r) == present && !w.settle(r) {
				return false
			}
		}
		if w.owner.event == w.count && (w.row.event != w.count || w.row.deleted != w.owner.deleted) {
			return false
		}
	}
	if w.row != w.owner {
		w.take(answer{purpose: reconcile, seen: w.row, owner: w.owner, asOf: w.now})
	}
	return w.row == w.owner || w.owner.event == 0 && (w.row.event == 0 || w.row.deleted)
}

// settle delivers an event, and repairs its aggregate, until the event is settled.
func (w *world) settle(r ref) bool {
	for range 3 {
		if w.get(r).settled {
			return true
		}
		w.decide(r)
		if !w.get(r).settled {
			w.take(answer{purpose: repair, event: r, owner: w.owner, asOf: w.now})
		}
	}
	return false
}

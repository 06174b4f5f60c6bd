package outbox

import (
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// followUp is a published version. low is a snapshot that saw no pending event behind the version.
type followUp struct {
	queue.AggregateVersion
	low    queue.TxSnapshot
	tenant string
}

// versions is a list of published versions, the oldest first.
type versions struct {
	list []followUp
	// takenLow is the earliest low of the work of a running claim: of the versions that the claim has
	// taken, and of the new events, whose low is the snapshot of the claim before. It is empty while no
	// claim runs.
	takenLow queue.TxSnapshot
	// restarted is true if restart was called after a claim had last taken versions from list.
	restarted bool
	// dueAt is when the versions in list justify a claim. A claim that is made before that time
	// for another reason takes the versions along. dueAt is zero while list is empty.
	dueAt time.Time
}

func (v *versions) add(p followUp, dueAt time.Time) {
	v.list, v.dueAt = append(v.list, p), soonest(v.dueAt, dueAt)
}

// take removes the first n versions from list, or fewer if there are fewer, and returns them for a claim.
func (v *versions) take(n int) []followUp {
	n = min(n, len(v.list))
	taken := v.list[:n:n]
	if v.list = v.list[n:]; len(v.list) == 0 {
		v.list, v.dueAt = nil, time.Time{}
	}
	v.takenLow, v.restarted = lowest(v.takenLow, taken), false
	return taken
}

// giveBack ends a claim, and puts versions that the claim has taken back into list. If the relay has met another server since
// they were taken, the scan of that meeting has taken their place.
func (v *versions) giveBack(taken []followUp) {
	v.takenLow = ""
	if len(taken) > 0 && !v.restarted {
		v.list, v.dueAt = append(taken, v.list...), soonest(v.dueAt, time.Now())
	}
}

// restart forgets the versions in list, because a scan that begins at the snapshot floor replaces them. floor also covers the
// events that a running claim looks for.
func (v *versions) restart(floor queue.TxSnapshot) {
	v.list, v.dueAt, v.restarted = nil, time.Time{}, true
	if v.takenLow != "" {
		v.takenLow = floor
	}
}

// dropExcess drops the oldest versions beyond maxFollowUps. A scan from the snapshot low finds the
// events behind the dropped versions. low is empty if no version was dropped.
func (v *versions) dropExcess() (low queue.TxSnapshot) {
	over := len(v.list) - maxFollowUps
	if over <= 0 {
		return ""
	}
	low = lowest("", v.list[:over])
	v.list = slices.Clone(v.list[over:])
	return low
}

// low returns a snapshot that saw no pending event behind any of the versions.
func (v *versions) low() queue.TxSnapshot { return lowest(v.takenLow, v.list) }

func lowest(low queue.TxSnapshot, of []followUp) queue.TxSnapshot {
	for _, p := range of {
		low = queue.Earliest(low, p.low)
	}
	return low
}

// versionsOf splits the published versions in after. at has the versions. lows maps the aggregate
// of each version to the earliest low of its versions. first is the earliest of all lows.
func versionsOf(after []followUp) (at []queue.AggregateVersion, lows map[aggregateKey]queue.TxSnapshot, first queue.TxSnapshot) {
	at, lows = make([]queue.AggregateVersion, len(after)), make(map[aggregateKey]queue.TxSnapshot, len(after))
	for i, p := range after {
		key := aggregateKey{p.AggregateType, p.AggregateID}
		at[i], lows[key], first = p.AggregateVersion, queue.Earliest(lows[key], p.low), queue.Earliest(first, p.low)
	}
	return at, lows, first
}

// aggregateKey names an aggregate.
type aggregateKey struct{ kind, id string }

package outbox

import "time"

// slowClaim is the longest time of a claim for which a held tenant saves up: the rate of one that is
// slower ends with it. A pause of the process is no claim.
const slowClaim = 50 * time.Millisecond

// savings are the events that a held tenant's rate allows. They are parts of events, so that no rate is
// too low for a turn.
type savings struct {
	events float64
	// sending are the events that were on the way to the broker at the time at, and a part of those
	// before: see earn.
	sending float64
	at      time.Time
}

// earn adds what the rate of events per second allows since the last call: in one round through so many
// held tenants.
//
// The tenant may save up the events of two rounds, because a scan and the events behind published
// ones take turns, and as many as are on their way. So one that is far from the broker fills its
// share within some answers, and one next to the broker has no burst after a pause of the relay. The
// second part falls at the rate: the events behind answered ones are found some time later.
func (s *savings) earn(sending int, rate float64, held int, now time.Time) {
	passed := now.Sub(s.at)
	earned := rate * min(passed, turnEvery+time.Duration(held)*slowClaim).Seconds()
	s.sending = max(float64(sending), s.sending-rate*passed.Seconds())
	most := 2*max(earned, perTurn(rate)) + s.sending + 1 // the part of an event that is left of a claim
	s.events, s.at = min(s.events+earned, most, tenantEvents), now
}

// skip passes over a time in which there were no turns.
func (s *savings) skip(now time.Time) { s.at = now }

// allowance is how many events a turn may claim where there is room for so many. It is 0 where they
// are too few to pay for a claim, which costs the rows that it reads.
func (s *savings) allowance(room int, rate float64) int {
	n := min(room, int(s.events))
	if float64(n) < min(fewEvents/2, max(1, perTurn(rate)/2)) {
		return 0
	}
	return n
}

// spend takes away the events of a claim.
func (s *savings) spend(events int) { s.events -= float64(events) }

// perTurn is how many events a rate allows in the time of a turn.
func perTurn(rate float64) float64 { return rate * turnEvery.Seconds() }

package outbox

import "time"

// slowClaim is a duration per claim of a round of turns. A held tenant saves up events for that long.
// If the claims take longer, the tenant saves up nothing for the rest of the time, and gets less than
// its rate. The same bound holds for a pause of the process.
const slowClaim = 50 * time.Millisecond

// savings has the number of events that a held tenant's rate allows. It counts fractions of events, so
// that even a low rate allows an event after some turns.
type savings struct {
	events float64
	// sending follows the number of the tenant's events that are on their way to the broker. It rises
	// at once, and falls no faster than the tenant's rate (see earn).
	sending float64
	at      time.Time
}

// earn adds the events that the rate allows for the time since the last call. At most the length of
// one round of turns counts. rate is in events per second, held is the number of held tenants, and
// sending is how many of the tenant's events are on their way to the broker.
//
// The tenant may save up the events of two rounds, because a turn may find nothing behind published
// events. In addition the tenant may save up as many events as are on their way. With a slow broker
// many events are on their way, so the tenant fills its share within some answers. With a fast
// broker few events are on their way, so the tenant has no burst after a pause of the relay. The
// number that is added falls no faster than the rate, because the relay finds the events behind
// answered events only some time after the answer.
func (s *savings) earn(sending int, rate float64, held int, now time.Time) {
	passed := now.Sub(s.at)
	earned := rate * min(passed, turnEvery+time.Duration(held)*slowClaim).Seconds()
	s.sending = max(float64(sending), s.sending-rate*passed.Seconds())
	most := 2*max(earned, perTurn(rate)) + s.sending + 1 // 1 for the fraction of an event that a claim leaves
	s.events, s.at = min(s.events+earned, most, tenantEvents), now
}

// skip notes that no turn was possible until now, so that earn adds nothing for that time.
func (s *savings) skip(now time.Time) { s.at = now }

// allowance returns how many events a turn may claim. room is how many more events the tenant's
// share allows. allowance returns 0 if the events are too few to justify the rows that a claim
// reads.
func (s *savings) allowance(room int, rate float64) int {
	n := min(room, int(s.events))
	if float64(n) < min(fewEvents/2, max(1, perTurn(rate)/2)) {
		return 0
	}
	return n
}

// spend subtracts the events of a claim.
func (s *savings) spend(events int) { s.events -= float64(events) }

// perTurn returns how many events a rate allows in turnEvery.
func perTurn(rate float64) float64 { return rate * turnEvery.Seconds() }

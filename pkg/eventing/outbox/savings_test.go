package outbox

import (
	"testing"
	"time"
)

// round goes on by a round of turns through so many held tenants, of whose claims each takes so long.
func (s *savings) round(rate float64, sending, held int, claim time.Duration) (events int) {
	s.earn(sending, rate, held, s.at.Add(turnEvery+time.Duration(held)*claim))
	events = s.allowance(tenantEvents, rate)
	s.spend(events)
	return events
}

// A turn ends when little is left of the rate: each claim costs the rows that it reads. After a
// pause of the relay a turn has the events of two, in all its claims. A tenant far from the broker
// saves up as many as it has on the way.
func TestATurnIsNoSeriesOfSmallClaimsAndNoBurst(t *testing.T) {
	t.Parallel()
	const rate = 1000
	now, turn := time.Now(), int(perTurn(rate))
	s := savings{at: now}
	claim := func(after time.Duration, sending, room, want int, when string) {
		t.Helper()
		now = now.Add(after)
		s.earn(sending, rate, 1, now)
		n := s.allowance(room, rate)
		if n != want {
			t.Errorf("%s: %d events, want %d", when, n, want)
		}
		s.spend(n)
	}
	claim(turnEvery/4, 0, tenantEvents, 0, "in the middle of a turn")
	claim(turnEvery*3/4, 0, tenantEvents, turn, "in the next turn")
	now = now.Add(time.Minute)
	s.skip(now)
	claim(turnEvery, 0, tenantEvents, turn, "after a pause of the relay")
	claim(time.Minute, 0, tenantEvents, int(rate*(turnEvery+slowClaim).Seconds()), "after one of the process")
	claim(0, 0, tenantEvents, 0, "in the same turn")
	for range 20 {
		claim(turnEvery, 100, 0, 0, "without room")
	}
	claim(0, 100, 5, 0, "with little room")
	claim(0, 100, tenantEvents, 100+2*turn+1, "while 100 are on their way")
	for range 20 {
		claim(turnEvery, 100, 0, 0, "without room")
	}
	claim(turnEvery, 0, tenantEvents, 80+2*turn+1, "a turn after their answer")
	for range 20 {
		claim(turnEvery, 0, 0, 0, "without room")
	}
	claim(0, 0, tenantEvents, 2*turn+1, "long after it")
}

// A tenant has its rate, or a relay its part of it, however low that is, and however many tenants are
// held whose claims take how long: although each other claim of a tenant finds nothing.
func TestAHeldTenantHasItsRate(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []float64{1, 10, 49, 99, 1000, 100_000} {
		for _, relays := range []float64{1, 2, 11, 101} {
			for held, claim := range map[int]time.Duration{1: 0, 2: slowClaim, 10: 10 * time.Millisecond, 60: time.Millisecond} {
				rate, s, took := perSecond/relays, savings{}, turnEvery+time.Duration(held)*claim
				const rounds = 100_000
				events := 0
				for i := range rounds {
					if i%2 == 0 {
						events += s.round(rate, 0, held, claim)
					} else {
						s.earn(0, rate, held, s.at.Add(took))
					}
				}
				seconds := rounds * took.Seconds()
				want := min(rate*seconds, tenantEvents*rounds/2)
				if float64(events) < 0.98*want-1 || float64(events) > rate*seconds+1 {
					t.Errorf("rate %.0f, %.0f relays, %d held with claims of %s: %d events in %.0f s, want %.0f",
						perSecond, relays, held, claim, events, seconds, want)
				}
			}
		}
	}
}

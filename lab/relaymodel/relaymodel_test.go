package relaymodel

import (
	"math"
	"os"
	"runtime/debug"
	"testing"
	"time"
)

var (
	allKinds       = kinds{lostAnswers: true, rollbacks: true, outages: true, ends: true}
	noOutages      = kinds{lostAnswers: true, rollbacks: true, ends: true}
	handedOver     = [mostEvents]bool{true, true, true}
	slowClaims     = slow{claims: true}
	slowHeartbeats = slow{claims: true, heartbeats: true}
)

// histories are the histories of a scope.
type histories struct {
	name string
	scope
}

// quick are scopes that are searched to their end in seconds, and full those of minutes.
var (
	quick = []histories{
		{"a kill, or a fault of each kind", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, left: budget{faults: 1, kills: 1}, kinds: allKinds,
		}},
		{"a kill and a stall, without handovers", scope{
			events: 1, relays: 2, first: 2, left: budget{faults: 1, kills: 1, stalls: 1}, kinds: allKinds,
		}},
		{"relays without their sessions, one of which lives", scope{
			events: 1, relays: 2, first: 2, left: budget{faults: 1, kills: 1, stalls: 1}, kinds: allKinds, noSessions: true,
		}},
		{"relays without their sessions, with handovers", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, left: budget{faults: 1, kills: 1, stalls: 1}, kinds: allKinds, noSessions: true,
		}},
		{"a kill and a stall, with handovers", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, left: budget{faults: 1, kills: 1, stalls: 1}, kinds: allKinds,
		}},
		{"claims and heartbeats that take long", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, slow: [mostRelays]slow{1: slowHeartbeats},
			left: budget{faults: 1, kills: 1}, kinds: allKinds,
		}},
		{"scans and settlements that take long", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, slow: [mostRelays]slow{1: {pages: true, settlements: true}},
			left: budget{faults: 1, kills: 1}, kinds: allKinds,
		}},
		{"a failover while a claim is on its way", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, slow: [mostRelays]slow{slowClaims}, left: budget{kills: 1, failovers: 1},
		}},
		{"a failover that loses commits", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, left: budget{failovers: 1}, standby: asynchronous,
		}},
		{"a failover that loses the mark of a retry", scope{
			events: 1, relays: 2, first: 2, left: budget{faults: 1, failovers: 1}, kinds: kinds{outages: true}, standby: asynchronous,
		}},
		{"a failover that loses commits, a kill and a stall", scope{
			events: 1, relays: 2, first: 2, left: budget{stalls: 1, kills: 1, failovers: 1}, standby: asynchronous,
		}},
		{"three versions", scope{events: 3, relays: 1, first: 1, left: budget{faults: 1}, kinds: allKinds}},
		{"two aggregates", scope{events: 2, relays: 2, first: 2, apart: true, left: budget{kills: 1}}},
		{"a held tenant, and a kill", oneHeld},
		{"a held tenant, and two versions", scope{events: 2, relays: 1, first: 1, left: budget{faults: 1, holds: 1}, kinds: allKinds}},
		{"a paused topic, and a kill", onePaused},
		{"a paused topic, and two versions", scope{events: 2, relays: 1, first: 1, left: budget{faults: 1, pauses: 1}, kinds: allKinds}},
		{"a held tenant in a paused topic", scope{events: 1, relays: 1, first: 1, left: budget{faults: 1, holds: 1, pauses: 1}, kinds: allKinds}},
		{"a refused event, and a kill", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, left: budget{faults: 1, kills: 1, refusals: 2, actions: 1}, kinds: allKinds,
		}},
		{"a refused event, and two versions", oneRefused},
		{"a refused event, and a stall", skipped},
		{"a locked row, and a kill", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, left: budget{faults: 1, kills: 1, locks: 1}, kinds: allKinds,
		}},
		{"a locked row, and two versions", oneLocked},
		{"the purge, and a kill", scope{events: 2, relays: 2, first: 2, left: budget{kills: 1, purges: 1}}},
	}
	full = []histories{
		{"a failover while a claim is on its way, and a lost answer", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, slow: [mostRelays]slow{1: slowClaims},
			left: budget{faults: 1, kills: 1, failovers: 1}, kinds: kinds{lostAnswers: true},
		}},
		{"a failover while a claim is on its way, and two lost answers", scope{
			events: 1, relays: 2, first: 1, slow: [mostRelays]slow{slowClaims},
			left: budget{faults: 2, failovers: 1}, kinds: kinds{lostAnswers: true},
		}},
		{"a relay that starts", scope{
			events: 1, relays: 2, first: 1, handover: handedOver, left: budget{faults: 1, kills: 1}, kinds: allKinds,
		}},
		{"a kill, a stall and claims that take long", scope{
			events: 1, relays: 2, first: 2, slow: [mostRelays]slow{1: slowClaims},
			left: budget{faults: 1, kills: 1, stalls: 1}, kinds: allKinds,
		}},
		{"relays without their sessions, and claims and heartbeats that take long", scope{
			events: 1, relays: 2, first: 2, slow: [mostRelays]slow{1: slowHeartbeats}, left: budget{kills: 1, stalls: 1}, noSessions: true,
		}},
		{"relays without their sessions, and scans that take long", scope{
			events: 1, relays: 2, first: 2, slow: [mostRelays]slow{1: {pages: true, settlements: true}},
			left: budget{kills: 1, stalls: 1}, noSessions: true,
		}},
		{"relays without their sessions, and a failover that loses commits", scope{
			events: 1, relays: 2, first: 2, left: budget{stalls: 1, kills: 1, failovers: 1}, standby: asynchronous, noSessions: true,
		}},
		{"a crash of the server, and ids that are used again", scope{
			events: 2, relays: 1, first: 1, slow: [mostRelays]slow{slowClaims}, left: budget{faults: 1, failovers: 1}, kinds: kinds{rollbacks: true},
		}},
		{"a failover that loses commits, and a fault", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, left: budget{faults: 1, failovers: 1}, kinds: noOutages, standby: asynchronous,
		}},
		{"a failover that loses commits of two events", scope{
			events: 2, relays: 1, first: 1, slow: [mostRelays]slow{slowClaims}, left: budget{failovers: 1}, standby: asynchronous,
		}},
		{"two versions, a kill and a fault", scope{
			events: 2, relays: 2, first: 2, handover: [mostEvents]bool{true}, left: budget{faults: 1, kills: 1}, kinds: allKinds,
		}},
		{"turns that take long", slowTurns},
		{"searches for probes that take long", slowProbes},
		{"searches for probes that outlast the pause", answeredLate},
		{"a held tenant, and a failover that loses commits", scope{
			events: 1, relays: 2, first: 2, left: budget{kills: 1, failovers: 1, holds: 1}, standby: asynchronous,
		}},
		{"a paused topic, and a failover that loses commits", scope{
			events: 1, relays: 2, first: 2, left: budget{kills: 1, failovers: 1, pauses: 1}, standby: asynchronous,
		}},
		{"a paused topic, and two aggregates", scope{
			events: 2, relays: 1, first: 1, apart: true, left: budget{faults: 1, pauses: 1}, kinds: allKinds,
		}},
		{"refusals, and a kill with two versions", scope{events: 2, relays: 2, first: 2, left: budget{kills: 1, refusals: 2, actions: 1}}},
		{"refusals, claims of retries and settlements that take long", slowRetries},
		{"refusals, a kill, and settlements that take long", scope{
			events: 2, relays: 2, first: 2, slow: [mostRelays]slow{{settlements: true}}, left: budget{kills: 1, refusals: 1},
		}},
		{"three refusals, a stall and a lost answer", scope{
			events: 1, relays: 2, first: 2, left: budget{faults: 1, stalls: 1, refusals: 3, actions: 1}, kinds: kinds{lostAnswers: true},
		}},
		{"refusals, and a failover that loses commits", scope{
			events: 1, relays: 2, first: 2, left: budget{failovers: 1, refusals: 2, actions: 1}, standby: asynchronous,
		}},
		{"refusals of two versions, and a failover that loses commits", scope{
			events: 2, relays: 1, first: 1, left: budget{failovers: 1, refusals: 2, actions: 1}, standby: asynchronous,
		}},
		{"refusals of a held tenant", scope{
			events: 2, relays: 1, first: 1, left: budget{faults: 1, holds: 1, refusals: 1}, kinds: allKinds,
		}},
		{"refusals in a topic that is paused", scope{
			events: 1, relays: 2, first: 2, left: budget{kills: 1, pauses: 1, refusals: 2, actions: 1},
		}},
		{"a scan that leaves retries out", scope{
			events: 2, relays: 1, first: 1, apart: true, left: budget{faults: 1, refusals: 1}, kinds: allKinds, retriesWait: true,
		}},
		{"a scan that leaves retries out, and a kill", scope{
			events: 2, relays: 2, first: 2, left: budget{kills: 1, refusals: 1}, retriesWait: true,
		}},
		{"three versions, of which an operator removes one and the purge another", scope{
			events: 3, relays: 1, first: 1, left: budget{refusals: 2, actions: 1, purges: 1},
		}},
		{"the purge, and three versions", scope{events: 3, relays: 1, first: 1, left: budget{faults: 1, purges: 2}, kinds: allKinds}},
		{"the purge, and a failover that loses commits", scope{
			events: 2, relays: 1, first: 1, left: budget{failovers: 1, purges: 1}, standby: asynchronous,
		}},
		{"the purge, and a crash of the server", scope{events: 2, relays: 2, first: 2, left: budget{failovers: 1, purges: 1}}},
		{"a locked row, and a stall", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, left: budget{kills: 1, stalls: 1, locks: 1},
		}},
		{"a locked row, claims and settlements that take long", scope{
			events: 1, relays: 2, first: 2, slow: [mostRelays]slow{1: {claims: true, settlements: true}}, left: budget{kills: 1, locks: 1},
		}},
		{"a locked row of a held tenant", scope{events: 1, relays: 2, first: 2, left: budget{kills: 1, holds: 1, locks: 1}}},
		{"a locked row in a paused topic", scope{events: 1, relays: 2, first: 2, left: budget{kills: 1, pauses: 1, locks: 1}}},
		{"a locked row, and refusals", scope{events: 2, relays: 1, first: 1, left: budget{refusals: 2, actions: 1, locks: 1}}},
		{"a locked row, and a failover that loses commits", scope{
			events: 1, relays: 2, first: 2, left: budget{failovers: 1, locks: 1}, standby: asynchronous,
		}},
		{"two versions, claims and settlements that take long", scope{
			events: 2, relays: 2, first: 2, slow: [mostRelays]slow{{claims: true, settlements: true}}, left: budget{faults: 1},
			kinds: kinds{lostAnswers: true, outages: true},
		}},
	}
	// oneHeld has a tenant that one relay holds and the other does not.
	oneHeld = scope{events: 1, relays: 2, first: 2, left: budget{faults: 1, kills: 1, holds: 1}, kinds: allKinds}
	// slowTurns has turns and claims that take long.
	slowTurns = scope{
		events: 1, relays: 2, first: 2, slow: [mostRelays]slow{{claims: true, turns: true}},
		left: budget{faults: 1, kills: 1, holds: 1}, kinds: kinds{lostAnswers: true},
	}
	// onePaused has a topic that one relay pauses and the other does not.
	onePaused = scope{events: 1, relays: 2, first: 2, left: budget{faults: 1, kills: 1, pauses: 1}, kinds: allKinds}
	// slowProbes has searches for probes, and claims, that take long.
	slowProbes = scope{
		events: 1, relays: 1, first: 1, slow: [mostRelays]slow{{claims: true, probes: true}}, left: budget{faults: 1, pauses: 1}, kinds: allKinds,
	}
	// answeredLate and killedLate have a request to the broker that ends a pause, and two aggregates.
	answeredLate = scope{
		events: 2, relays: 1, first: 1, apart: true, slow: [mostRelays]slow{{probes: true}},
		left: budget{faults: 1, pauses: 1}, kinds: kinds{lostAnswers: true},
	}
	killedLate = scope{
		events: 2, relays: 2, first: 2, apart: true, slow: [mostRelays]slow{{probes: true}}, left: budget{kills: 1, pauses: 1},
	}
	// oneRefused has two versions that the broker refuses, and an operator, and oneLocked a row that another session locks.
	oneRefused = scope{events: 2, relays: 1, first: 1, left: budget{faults: 1, refusals: 2, actions: 1}, kinds: allKinds}
	oneLocked  = scope{events: 2, relays: 1, first: 1, left: budget{faults: 1, locks: 1}, kinds: allKinds}
	// skipped has a relay that stands still with a refused event.
	skipped = scope{events: 1, relays: 2, first: 2, left: budget{stalls: 1, refusals: 2, actions: 1}}
	// slowRetries has claims of retries that take long.
	slowRetries = scope{
		events: 2, relays: 1, first: 1, slow: [mostRelays]slow{{pages: true, settlements: true}}, left: budget{refusals: 2, actions: 1},
	}
	// large is too large for a whole search.
	large = scope{
		events: 2, relays: 2, first: 2, handover: handedOver, home: [mostEvents]int{0, 1},
		slow: [mostRelays]slow{{claims: true, pages: true, settlements: true, heartbeats: true}},
		left: budget{faults: 2, kills: 1, failovers: 1}, kinds: allKinds,
	}
)

const largeDepth = 12

// lacking returns the scope without parts of the protocol.
func (c scope) lacking(without protocolParts) scope {
	c.without = without
	return c
}

// searched searches a scope, and logs its size.
func searched(t *testing.T, c scope, depth int) *search {
	t.Helper()
	begin := time.Now()
	f := explore(&c, depth)
	t.Logf("%d states, %d transitions, depth %d, exhausted: %t, %s",
		len(f.met), f.transitions, f.depth, f.exhausted, time.Since(begin).Round(time.Millisecond))
	return f
}

// TestRelaysKeepTheirPromises searches the histories of each scope for one that breaks a rule.
func TestRelaysKeepTheirPromises(t *testing.T) {
	scopes, inFull := quick, os.Getenv("LOCKSTEP_FULL") != ""
	if inFull {
		scopes = append(scopes, full...)
		t.Cleanup(func() { debug.SetMemoryLimit(math.MaxInt64) })
		debug.SetMemoryLimit(3 << 30) // the searches need half of it, and leave much garbage
	}
	for _, c := range scopes {
		t.Run(c.name, func(t *testing.T) {
			if f := searched(t, c.scope, 0); f.broken != "" || !f.exhausted {
				t.Error(f.history())
			}
		})
	}
	if inFull {
		t.Run("the first steps of a large scope", func(t *testing.T) {
			if f := searched(t, large, largeDepth); f.broken != "" {
				t.Error(f.history())
			}
		})
	}
}

// TestEachPartIsNeeded leaves out a part of the protocol, and expects a history that breaks a rule. So the search can fail.
func TestEachPartIsNeeded(t *testing.T) {
	t.Parallel()
	for _, c := range []histories{
		{"heads", scope{events: 2, relays: 2, first: 2, without: protocolParts{heads: true}}},
		{"inherited", scope{
			events: 2, apart: true, relays: 2, first: 2, left: budget{kills: 1}, without: protocolParts{inherited: true},
		}},
		{"endedRelays", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, slow: [mostRelays]slow{1: slowClaims},
			left: budget{faults: 1}, kinds: kinds{ends: true}, without: protocolParts{endedRelays: true},
		}},
		{"metServer", scope{
			events: 2, relays: 1, first: 1, slow: [mostRelays]slow{slowClaims},
			left: budget{faults: 1, failovers: 1}, kinds: kinds{rollbacks: true}, without: protocolParts{metServer: true},
		}},
		{"returnedLeases", scope{
			events: 1, relays: 2, first: 2, left: budget{failovers: 1}, standby: asynchronous, without: protocolParts{returnedLeases: true},
		}},
		{"recovery", scope{
			events: 2, relays: 1, first: 1, left: budget{faults: 1, failovers: 1}, kinds: kinds{rollbacks: true}, without: protocolParts{recovery: true},
		}},
		{"claimLow", scope{
			events: 1, relays: 2, first: 2, handover: handedOver, slow: [mostRelays]slow{1: slowClaims},
			left: budget{faults: 1, kills: 1, failovers: 1}, kinds: kinds{lostAnswers: true}, without: protocolParts{claimLow: true},
		}},
		{"floor", scope{
			events: 2, relays: 1, first: 1, handover: [mostEvents]bool{1: true},
			left: budget{faults: 1, failovers: 1}, kinds: kinds{rollbacks: true}, without: protocolParts{floor: true},
		}},
		{"formerRetry", scope{
			events: 1, relays: 2, first: 2, left: budget{faults: 1, failovers: 1}, kinds: kinds{outages: true}, standby: asynchronous,
			without: protocolParts{formerRetry: true},
		}},
		{"refusals", scope{
			events: 1, relays: 2, first: 2, left: budget{stalls: 1, kills: 1, failovers: 1}, standby: asynchronous, without: protocolParts{refusals: true},
		}},
		{"elsewhere", scope{
			events: 1, relays: 2, first: 2, handover: handedOver,
			left: budget{faults: 1, kills: 1, stalls: 1}, kinds: kinds{lostAnswers: true}, without: protocolParts{elsewhere: true},
		}},
		{"skippedTenants", oneHeld.lacking(protocolParts{skippedTenants: true})},
		{"skippedParts", oneHeld.lacking(protocolParts{skippedParts: true})},
		{"leftByTurns", oneHeld.lacking(protocolParts{leftByTurns: true})},
		{"seenInTurns", slowTurns.lacking(protocolParts{seenInTurns: true})},
		{"tenantLow", oneHeld.lacking(protocolParts{tenantLow: true})},
		{"skippedTypes", onePaused.lacking(protocolParts{skippedTypes: true})},
		{"lateResumes", slowProbes.lacking(protocolParts{lateResumes: true})},
		{"searching", killedLate.lacking(protocolParts{searching: true})},
		{"lostSearches", answeredLate.lacking(protocolParts{lostSearches: true})},
		{"parked", oneRefused.lacking(protocolParts{parked: true})},
		{"retried", scope{
			events: 2, relays: 1, first: 1, slow: [mostRelays]slow{{pages: true, settlements: true}},
			left: budget{kills: 1, refusals: 1}, without: protocolParts{retried: true},
		}},
		{"settleLimit", scope{
			events: 2, relays: 2, first: 2, slow: [mostRelays]slow{1: {settlements: true}},
			left: budget{kills: 1, refusals: 1}, without: protocolParts{settleLimit: true},
		}},
		{"removalLow", oneRefused.lacking(protocolParts{removalLow: true})},
		{"countedOnce", oneRefused.lacking(protocolParts{countedOnce: true})},
		{"parkedOnce", oneRefused.lacking(protocolParts{parkedOnce: true})},
		{"lapsed", skipped.lacking(protocolParts{lapsed: true})},
		{"lockedRows", oneLocked.lacking(protocolParts{lockedRows: true})},
		{"aroundLocks", oneLocked.lacking(protocolParts{aroundLocks: true})},
		{"purged", scope{events: 2, relays: 1, first: 1, left: budget{purges: 1}, without: protocolParts{purged: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := searched(t, c.scope, 0)
			if f.broken == "" {
				t.Fatal("no history breaks a rule without this part")
			}
			t.Log(f.history())
		})
	}
}

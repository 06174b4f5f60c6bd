// Package relaymodel searches a model of the outbox's relays for histories that break their promises. The random histories of
// pkg/eventing/outbox run the code itself, and meet a rare order of steps by chance. The model has only the protocol, so
// that a search reaches every order of its steps within a scope. It has found faults that no random history had met.
//
// # What is modelled
//
// The comment of each function of the model names the statement or the function that it models. Without a
// package, the name is of package outbox. A change of the protocol is made here, too:
//
//	pkg/eventing/outbox                       here
//	queue/claim.sql                           claim.go: candidates, executeClaim; state.go: follows, nextPending
//	queue/settle.sql                          settle.go: beginSettlement, executeSettlement, fail
//	queue/purge.sql                           sessions.go: stepsOfPurge
//	queue/heartbeat.sql                       heartbeat.go: executeHeartbeat, inherit, takeOver
//	queue/snapshot.go                         snapshot.go
//	insert.go: insertLeased                   transaction.go: write
//	claimer.go, scanner.go                    claim.go: sendClaim, answerClaim, sendPage, answerPage
//	settler.go, leases.go                     settle.go: answerSettlement, fail, follow, forget, loseSettlement
//	heartbeat.go, duescans.go                 heartbeat.go: answerHeartbeat; state.go: low
//	handover.go, unresolved.go                transaction.go; settle.go: closeResolved
//	inflight.go                               claim.go: dispatch; state.go: low
//	life.go                                   heartbeat.go: meet; state.go: covering
//	held.go, turns.go, turner.go              tenant.go
//	pause.go, prober.go                       topic.go
//	publisher.go                              transaction.go: publish; goroutines.go: refusals
//	relay.go: Run; lastclaims.go              life.go: stepsOfEnd; goroutines.go: claimsNew
//	../operator/backlog                       operator.go
//
// Then run the searches, and take the new code out again with a field of protocolParts: TestEachPartIsNeeded shows that the search
// finds the fault.
//
// The abstractions:
//
//   - A transaction writes one event. There are up to three events, of one aggregate or of several, and two relays.
//     A third relay starts when none runs any more.
//   - There are no clocks. A lease is over at any time if no relay renews it, and a retry is due at once. The
//     model leaves out the orders that time limits exclude: a lease outlives the claim that takes it, a relay
//     gives a handover up only when its lease is over, and relay.unknownLeases outlives the unknown leases.
//     The leases of a gone relay count as none until that relay is alive again. In a scope with noSessions,
//     each relay that is taken over is gone. Otherwise only a relay that has deregistered is gone.
//   - Ids of transactions count the events' transactions alone, so the statements of relays use up none.
//   - A statement takes effect at once, or in the steps sent, begins (its snapshot), executed and answered,
//     as the scope says. A statement of a killed process may still be executed, until other relays regard its
//     relay as dead.
//   - A page of a scan has all rows of one open transaction, or all rows of later transactions. A page of a
//     turn has the rows of one transaction.
//   - All events are of one tenant. A relay holds it and releases it at any time, and has a turn at any time.
//   - All events are of one topic. A relay pauses it at any time, because events that are not in the scope
//     may have failed, and looks for a probe at any time. A request that the broker has got before goes on. A
//     search for probes has more than one page only if a transaction was open in the low from which the
//     search started.
//   - The broker refuses an event at any time, and the second refusal parks it. A refusal in a paused topic is an outage, and
//     refusals pause no topic.
//   - An operator retries, skips or removes a parked event at any time. A skip waits until no request that
//     has the event can begin any more, and until no claim is on its way that began before the event was
//     parked. A removal is the skip of a refused marker. Here an operator may remove any parked event, as if
//     it were a marker.
//   - Another session locks the row of any event at any time, and unlocks it in the end. The lease in a locked row is not renewed.
//   - The purge deletes a published event at any time, unless it is the newest one of its aggregate. The code deletes fewer
//     events: the next event of the aggregate has to be published, too.
//   - The number of faults is limited: lost answers, rollbacks, outages of the broker, refusals, actions of operators, purged
//     rows, locks, relays that are told to end, kills, stalls, and failovers to a standby with or without the last commits. A
//     crash of the server is a failover to itself.
//
// # What is checked
//
//   - Atomic: an event that arrives at the broker is committed. After a failover without the last commits it may be lost.
//   - Ordered: an event arrives first when the version before it is acknowledged, or in the same request.
//   - Delivered: in every state a continuation without further faults publishes all committed events, except
//     parked events and the events behind them.
//   - Lows: for each pending event, some relay's row in the table has a low that did not see the event. The
//     exceptions are retries, parked events and the events behind them. See "Where to look" in the package
//     queue.
//   - Parked: no relay claims a parked event, or one behind it. A refusal counts once, and an event is parked at its last
//     attempt. An event that an operator has skipped is not sent.
//
// The sweep is left out, because it would find every event in the end. So is the early scan for a relay that is gone, because
// nothing depends on it: the takeover comes later. Not modelled either are topics that refusals pause,
// rates and shares of tenants, limits of claims and of memory, several batches in one settlement, savepoints, sessions
// of a former primary, the times of retries, and statements that are executed after a relay that still runs has given them
// up. A refusal that a relay has not settled when an operator releases the event may count after that.
//
// # A counterexample
//
// A search prints one of the shortest histories that break a promise: its steps, one a line, then the tables,
// and then the next steps of a continuation without further faults. Look for the event that stays pending:
// its row has a lease that is over or a version that no relay follows, and all lows have seen its transaction
// (xact is below next and not in the set open). Then look for the last step after which a relay was still to
// look for the event. Before the code is changed, write the history as a test of the package outbox:
// takeover_test.go, failover_test.go and again_test.go have such tests.
package relaymodel

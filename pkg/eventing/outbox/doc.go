// Package outbox publishes the events of committed transactions: the transactional
// outbox (Richardson, "Microservices Patterns", 2018), relayed from inside the
// process that writes it.
//
// Append writes an event in the transaction that makes the change. Relay finds
// it after the commit, publishes it, and marks it. Any number of relays share
// one outbox. Package queue has the statements, with their reasons.
//
// # Goroutines
//
// One goroutine claims new events, as its schedule says (claims), and waits for
// nothing but the database and room. Another one scans (scans): retries, events that
// dead relays had in hand, events that a claim had to leave. A third looks for events to
// probe the topics with that are out. A fourth shows every few seconds that
// the relay is alive, and from where on another one would have to look; a fifth reads
// the backlog for the metrics. A slow or failed statement of one of them is no outage
// to the claims, and the scans do not wait for a probe. Some publish, one settles. Their
// follow-ups for each other are in the agenda; the runs in hand, in flight.
//
// # States of an event
//
//	            claim                   acknowledged
//	 pending ───────────▶ leased ─────────────────────▶ published ──▶ deleted
//	    ▲                   │ │                                  retention
//	    │ shutdown, or      │ │ refused by the broker: attempts + 1
//	    │ lease ran out     │ │ outage: attempts as they were
//	    ├───────────────────┘ ├──────▶ pending, after next_retry_at
//	    │                     └─5th──▶ parked, until an operator acts
//
//	pending    published_at, parked_at are null
//	leased     as pending, and lock_token is set on the aggregate's oldest pending
//	           row, with a locked_at younger than 20 s by the database's clock
//	published  published_at is set
//	parked     parked_at is set, last_error says why
//
// # Invariants
//
//   - A relay sends an aggregate's events from the oldest pending one upwards,
//     each request after the acknowledgement of the one before. Hence the first
//     sending of version n+1 is in the same request as version n's, behind it, or
//     after its acknowledgement.
//   - That holds even between a relay that lost its lease without noticing and
//     its successor: whatever the first still sends begins at a row that was the
//     oldest pending one when it claimed, so it can only repeat, never run ahead.
//     The lease keeps repeats rare; order does not hang on it.
//   - Only the holder of the lease marks. A relay that was overtaken marks
//     nothing, and its events are sent again.
//   - A parked event holds up its own aggregate, and no other.
//
// # Faults
//
// A rejection (INVALID_ARGUMENT for a message sent alone) spends an attempt; a
// refused request of several is no verdict on its members, so the oldest goes alone
// first, and then more at a time. Everything else is an outage: it spends none, and
// the aggregate is tried again after a jittered pause. Three in a row, or one that is
// the topic's own (missing, forbidden, over its quota), open the topic's circuit:
// nothing goes there but probes behind a capped, jittered backoff. Other topics go on.
//
// Rejections of three different aggregates, with no success since the first of them,
// are a fault of the topic, too: a schema, a policy. They open its circuit and from
// then on spend nothing and park nothing. What two aggregates spent before that is
// all. Such a circuit is probed with one event of another aggregate each time, then
// with four, sixteen and up to 64 aggregates' events, each in a request of its own:
// if the topic is well, and many events are bad, one success shows it. Aggregates that
// were refused before a success of another are known to be bad by themselves from then
// on: their rejections are verdicts and count for nothing else. Hence one or two
// aggregates that write alone and are refused are parked, as bad events are among good
// ones; three that are alone wait, and the topic is paused, until another one writes.
//
// A row that somebody else has locked keeps its own aggregate from being marked, and
// no other: settling waits 100 ms, then goes around it, and tries again while the
// lease is renewed. A database that does not mark in time all that landed together is
// asked for half as much, down to a part of one run; its rest is then sent again.
//
// After Run's context has ended, publishes and claims in flight get 3 s, and 0.8 s
// more is all that writing their outcomes may take. Outcomes that a database
// that hangs did not write stay leased until that runs out.
//
// # Crash points
//
//	before the claim commits      nothing happened
//	a claim's answer is lost      for 25 s the relay takes leases of its own for nobody's,
//	                              and scans for what they cover
//	leased, not published         the lease runs out, another relay sends them
//	published, not acknowledged   as above: they arrive twice
//	acknowledged, not marked      as above
//	some of a batch marked        each run is marked in one statement, or up to some
//	                              version of it; the rest arrives twice
//	the primary, synchronous      as above: the claim's commit waited for the standby
//	the primary, asynchronous     what it alone had is lost, also what was sent
//
// # Waking up
//
// Wake, called after a commit, makes the relay of this process look at once, and
// tells the others in a NOTIFY of its own, once a second at most. There is none
// in the business transaction: it takes a lock that the whole cluster shares,
// measured at half of the commits with 32 writers. Whoever cannot LISTEN polls,
// which is the truth for all of them: at once after a claim that found something,
// else after a jittered pause that grows to 5 s. Retries are looked for when they are
// due, and every 5 s. The events of a killed relay leave when their leases have run out
// and the others have missed its sign of life, after 15 to 20 s.
//
// # Consume and emit
//
// A service that answers events with events applies and appends in the one
// transaction that its inbox commits. SourceEventID then stops a replay that the
// inbox has forgotten: pkg/eventing/emit_test.go is such a service.
//
// # Limits
//
// A relay holds up to 6,000 events and 24 MiB of payloads, and 6,000 positions behind
// which something may follow: beyond that it scans. Of topics that are out it holds up to
// 256 events beside them, which probes are chosen from. A look through all that it has left
// which finds none is made again after 20 times as long, or 30 s. The newest event of an aggregate
// is never purged, but emptied: by it Append knows the next version. A request carries
// one ordering key, hence one aggregate, which has one request on its way at a time: 100
// pending versions of one cost a request, and so does one of each of 100. An aggregate
// that is behind gets up to 1000 versions into a request, as many as Pub/Sub takes,
// where the claim has room for all that are.
package outbox

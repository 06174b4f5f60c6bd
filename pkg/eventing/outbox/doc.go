// Package outbox publishes what a transaction committed: the transactional
// outbox (Richardson, "Microservices Patterns", 2018), relayed from inside the
// process that writes it.
//
// Append writes an event in the transaction that makes the change. Relay finds
// it after the commit, publishes it, and marks it. Any number of relays share
// one outbox.
//
// # States of a row
//
//	            claim                   acknowledged
//	 pending ───────────▶ leased ─────────────────────▶ published
//	    ▲                   │ │
//	    │ outage, shutdown, │ │ refused by the broker
//	    │ or lease ran out  │ │   attempts + 1
//	    ├───────────────────┘ ├──────▶ pending, after next_retry_at
//	    │                     └─5th──▶ parked, until an operator acts
//
//	pending    published_at, lock_token and parked_at are null
//	leased     lock_token set, locked_at younger than 20 s by the database's clock
//	published  published_at set
//	parked     parked_at set, last_error says why
//
// # Invariants
//
//   - Only the relay that leases an aggregate's oldest unpublished row publishes
//     any of that aggregate's rows, from that row upwards, each request after the
//     acknowledgement of the one before. Hence the first sending of version n+1
//     is in the same request as version n's, behind it, or after its
//     acknowledgement.
//   - That holds even between a relay that lost its lease without noticing and
//     its successor: whatever the first still sends begins at a row that was
//     unpublished when it claimed, so it can only repeat, never run ahead. The
//     lease keeps repeats rare; order does not hang on it.
//   - A row is marked only by whoever holds its token. A relay that was overtaken
//     marks nothing, and the rows are sent again.
//   - A parked row holds up its own aggregate, and no other.
//
// # Faults
//
// An outage (the network, the topic, permissions, quota: everything but
// INVALID_ARGUMENT) stops the round, hands everything back, and is retried with
// a probe of one aggregate behind a capped, jittered backoff. It spends no
// attempt. A rejection (INVALID_ARGUMENT for a message sent alone) spends one; a
// refused request of several is no verdict on its members, so they go alone
// first.
//
// # Crash points
//
//	before the claim commits      nothing happened
//	leased, not published         the lease runs out, another relay sends them
//	published, not acknowledged   as above: they arrive twice
//	acknowledged, not marked      as above
//	some of a round marked        cannot be: a round settles in one transaction
//
// # Why the oldest row is the lock
//
// Claiming rows with SKIP LOCKED alone lets two relays hold two versions of one
// aggregate and send the later first. Ordering by time, sequence or transaction
// id does not help: a lower one can commit later. Versions are assigned under
// the aggregate's row lock, so the lowest unpublished one is well defined in
// every snapshot, and FOR UPDATE SKIP LOCKED on that one row excludes everybody
// else from all rows behind it, without a table of locks or a leader.
//
// # Waking up
//
// Wake, called after a commit, makes the relay of this process look at once.
// There is no NOTIFY in the business transaction: it takes a lock that the whole
// cluster shares, measured at half of the commits with 32 writers. Relays in
// other processes find rows by polling, which is the truth for all of them: at
// once after a round that found something, else after a jittered pause that
// grows to 5 s.
package outbox

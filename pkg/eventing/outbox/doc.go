// Package outbox publishes the events of committed transactions: the transactional
// outbox (Richardson, "Microservices Patterns", 2018), relayed from inside the
// process that writes it.
//
// Append writes an event in the transaction that makes the change. Relay finds
// it after the commit, publishes it, and marks it. Any number of relays share
// one outbox. Package queue has the statements, with their reasons.
//
// Files, in the order of an event:
//
//	append.go        Append writes the event; epoch.go has the owner's epoch for it
//	relay.go         Relay: its goroutines, Wake; options.go has its settings and hooks
//	scheduler.go     decides what to claim next
//	claimer.go       claims new events, scanner.go retries and rows that a claim missed
//	inflight.go      the leased batches; shares.go: of each tenant, on the way to the broker
//	tenants.go       knows the tenants above their rate; held.go has their events wait for the
//	                 turns of turner.go
//	publisher.go     publishes a batch
//	settlement.go    turns the broker's answer into a result: published, again, or parked
//	settler.go       marks results, renews leases
//	followups.go     work that one goroutine leaves for another
//	maintain.go      deletes published events after the retention; reads the backlog
//
// Off that way: pause.go pauses a topic that fails, prober.go probes it; heartbeat.go
// keeps the relay's row and computes the snapshot in it; telemetry.go has the metrics,
// trace.go the spans.
//
// # States of an event
//
//	            claim                   acknowledged
//	 pending ───────────▶ leased ─────────────────────▶ published ──▶ deleted
//	    ▲                   │ │                                  retention
//	    │ shutdown, or      │ │ refused by the broker: attempts + 1
//	    │ lease ran out     │ │ outage: attempts as they were
//	    ├───────────────────┘ ├──────▶ pending, after next_retry_at
//	    │                     └─last─▶ parked, until an operator acts
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
//     its successor: a batch of the first relay begins at a row that was the oldest
//     pending one when it claimed, so it can only repeat, never run ahead. The lease
//     keeps repeats rare; order does not depend on it.
//   - Only the relay with the lease marks. A relay that was overtaken marks nothing,
//     and its events are sent again.
//   - A parked event blocks its own aggregate, and no other.
//
// # Goroutines
//
// Four goroutines claim: one new events, one retries and scans, one for held tenants, one
// probes for paused topics. 128 goroutines publish, one settles. One writes a heartbeat
// every few seconds: the relay's row in the table of relays, with the snapshot from which
// another relay must scan if this one dies (its low). One reads the backlog for the metrics.
// A slow or failed statement of a scan, a turn, a probe or a heartbeat does not stop the
// claims, and turns and scans wait for none of the others. The goroutines leave work for
// each other in followUps; the leased batches are inFlight.
//
// # Scheduler
//
// Each claiming goroutine is a state machine. claimSchedule, scanSchedule and turnSchedule
// decide the next state from the time and the due times, without a database (scheduler.go);
// the probes' state is in each topic's pause (pause.go).
//
//	           row written               nothing due
//	register ───────────────▶ new ──────────────────────▶ idle
//	    │                     │ ▲ ▲                         │
//	    │ statement failed    │ │ └─────────────────────────┘ Wake; a notification; an event
//	    └──────────▶ pause ◀──┘ │                             seen behind a published one (at
//	                   │        │ OutageBackoff               once) or possible there (20 ms);
//	                   └────────┘                             the poll's time (up to 5 s)
//
//	       ┌──────────▶ retry   the first retry is due, and every 2.5 to 5 s
//	       │
//	idle ◀─┼──────────▶ scan    page by page, from the lowest snapshot that was asked for: a
//	  ▲    │                    claim was truncated, or had to skip rows or leases; a batch
//	  │    │                    was handed back or given up; a relay has died; this one is
//	  │    │                    new, or meets another server; a topic has resumed
//	  │    │
//	  │    └──────────▶ sweep   every 2.5 to 5 s the next 1,000 rows of the whole table
//	  │ OutageBackoff  │
//	  └─────── pause ◀─┘ a statement of one failed: the others go on
//
//	      every 20 ms while a tenant is held
//	idle ◀──────────────────────────────────▶ turn ──▶ pause (OutageBackoff) if a statement failed
//
//	       a topic's pause is over           candidates found
//	idle ───────────────────────────▶ search ────────────────▶ probe
//	 ▲ ▲                                │                        │
//	 │ └─ no candidate yet; failed; no ─┘                        │
//	 │    event waits: the topic resumes                         │
//	 └─── success: the topic resumes; refused, or an outage: ────┘
//	      a longer pause
//
//	state     action                         leaves it when
//	register  writes the relay's row         the row is written
//	new       claims events that committed   the claim is answered; it begins when there is
//	          since the last claim, and      room for another claim in flight
//	          events behind published ones
//	retry     claims due retries             as new
//	scan      claims among 2,000 rows        as new; due retries come between two pages
//	          that a low did not see
//	sweep     claims among 1,000 rows        as new
//	turn      claims up to 500 events of     as new; at most four claims a turn for each
//	          the next held tenant           held tenant
//	search    claims candidates for a probe  candidates are leased, or there are none
//	probe     publishes the chosen events    each has a result
//	pause     nothing, even if work is due   its time is over
//	idle      nothing                        the time or a signal that the arrow names
//
// After a pause the failed action is due again. While every topic is paused, the first
// machine pauses too. A wake-up during a pause is kept for the state after it. Before the
// relay has its row, scans stay idle.
//
// # Tenants
//
// A broker delivers in about the order of publishing, and consumers apply in that order.
// So one tenant's event passes another tenant's million only if the relay does not publish
// those ahead of it. While events of several tenants come (within a minute), a claim takes 100
// events in place of 2,000. A tenant above TenantRate, 1,000 events a second, or with more events
// on their way to the broker than its share, is held:
//
//	        too many events while            it has caught up, or
//	        others are active                no other is active
//	served ──────────────────▶ held ─────────────────────────────────▶ served
//
// The share holds where the broker or the machine takes less than TenantRate: without it the busiest
// tenants, below their rates, have all the relay's room, and an event of another one waits behind
// thousands. It is 500 events, or a fair part of the 2,000 of all tenants: those with few leave the
// rest to the others. An event counts until the broker has answered. 50 events of each tenant may
// always be on their way: those of more than 40 are more than the 2,000, up to the relay's room.
// Where the 2,000 are, claims take 50, and a tenant with more is held. So is one with more than
// 1,500 events in flight, also if they are published and cannot be marked.
//
// Claims, scans and the sweep skip a held tenant's events. Every 20 ms the held tenants have turns,
// one after the other: a goroutine of their own claims behind a tenant's published events, or in the
// next page of a scan that is the tenant's own. That scan goes through the pages that scans for all
// have skipped, and ends at the snapshot of the last claim. A turn takes what the tenant's rate
// allows and its share leaves. A tenant can save up the events of two rounds of turns, and as many
// as it has on the way: so a pause of the relay is followed by no burst, and a tenant far from the
// broker fills its share. A claim that takes more than 50 ms lowers its rate. Each held tenant
// leaves at TenantRate at most, of which each relay has an equal part: a tenant below the rate,
// which was held for a backlog that an outage had left, catches up however many others do, where the
// broker answers its share fast enough. A tenant has caught up when its scan is complete and nothing
// of its is on its way, or when no turn was full for five seconds. The relays tell each other in
// their heartbeats of the last two tenants that they met, since one of them may meet the busy tenant
// only. The relay's low covers skipped events, so the turns of a relay that dies are found by
// another one's scan.
//
// During a tenant's scan the relay's low stays where the scan began: if the relay dies, another
// one reads all rows since then before it finds those that were leased.
//
// Retries are claimed in the order of their times, for all tenants, and do not count for a
// tenant's share: while several are active, about 500 of them are on their way. A relay that meets one
// tenant holds none. More than 64 tenants are not held at a time. A claim of a turn reads up to
// 500 rows, of all tenants: with many held tenants among each other's rows, the pages bound the
// rate.
//
// # Faults
//
// A rejection (INVALID_ARGUMENT for a message sent alone) spends an attempt. A refused
// request of several messages does not tell which one is bad, so the oldest goes alone
// first, and then more at a time. Every other failure is an outage. It spends no attempt,
// and the aggregate is tried again after a jittered pause. Three outages in a row, or one
// that is the topic's own (missing, forbidden, over its quota), pause the topic: from then
// on it gets only probes of one event, behind a capped, jittered backoff. Other topics go
// on.
//
// Rejections of three different aggregates, with no success since the first of them,
// are a fault of the topic, too: a schema, a policy. They pause it, and from then on
// spend no attempt and park no event. Only the attempts that two aggregates spent before
// that are lost. Such a topic is probed with one event of another aggregate each time, then
// with four, sixteen and up to 64 aggregates' events, each in a request of its own: a
// refusal costs the broker nothing, and if the topic is well, and many events are bad, one
// success shows it. If the topic accepts another aggregate's event after a refusal,
// the refused event is at fault and not the topic: later rejections count against that event.
// Hence one or two aggregates that write alone and are refused are parked, as bad events
// are among good ones. Three that are alone wait, and the topic is paused, until another
// aggregate writes.
//
// A row that another session has locked keeps its own aggregate from being marked, and
// no other: settling waits 100 ms, then goes around it, and tries again while the
// lease is renewed. If the database does not mark all results in time, the next statement
// has half as many, down to a part of one batch; the rest of that batch is sent again.
//
// After Run's context has ended, publishes and claims in flight get 3 s. Writing their
// results may take 0.8 s more. If the database hangs, the results that it did not
// write stay leased until the leases run out.
//
// # Settings and hooks
//
// Options have the attempts and the pauses. Each bound keeps a promise: with one attempt, a
// fault of the topic would park the first two aggregates that meet it; a retry more than
// queue.MaxRetry away counts as due; and after longer pauses in an outage, a killed relay's
// events would leave too late. The limits of leases, claims and requests are no settings,
// because order and the drain at the end depend on them.
//
// OnRefused and OnPaused observe refusals and pauses besides metrics and log. They see
// a refusal after it was written, and are called at most once, outside of everything that
// moves events: package hook has the contract.
//
// # Crash points
//
//	before the claim commits      nothing happened
//	a claim's answer is lost      for 25 s the relay treats leases under its own token as
//	                              ownerless, and scans for the rows that they cover
//	leased, not published         the lease runs out, another relay sends them
//	published, not acknowledged   as above: they arrive twice
//	acknowledged, not marked      as above
//	some batches marked           each batch is marked in one statement, or up to one of
//	                              its versions; the rest arrives twice
//	the primary, synchronous      as above: the claim's commit waited for the standby
//	the primary, asynchronous     rows that only it had are lost, sent ones included
//
// # Waking up
//
// Wake, called after a commit, makes the relay of this process claim at once, and
// notifies the others in a NOTIFY of its own, once a second at most. The business
// transaction has no NOTIFY: that takes a lock that the whole cluster shares, measured
// at half of the commits with 32 writers. A relay that cannot LISTEN polls, and no
// promise depends on more than polling: at once after a claim that found something, else
// after a jittered pause that grows to 5 s. Retries are claimed when they are due, and
// every 5 s. The events of a killed relay leave when their leases have run out and the
// others have missed its heartbeats, after 15 to 20 s.
//
// # Consume and emit
//
// A service that answers events with events applies and appends in the one
// transaction that its inbox commits. SourceEventID then stops a replay that the
// inbox has forgotten: pkg/eventing/emit_test.go is such a service.
//
// # Limits
//
// A relay holds up to 6,000 events and 24 MiB of payloads, and 6,000 published versions
// behind which events may follow: beyond that it scans. On top of these it holds up to
// 256 events of paused topics, which probes are chosen from. A scan for probes that finds
// none is repeated after 20 times its own duration, or after 30 s. The newest event of
// an aggregate is never purged, only emptied: by it Append knows the next version. A
// request carries one ordering key, hence one aggregate, which has one request on its
// way at a time: 100 pending versions of one cost a request, and so does one of each of
// 100. An aggregate that is behind gets up to 1,000 versions into a request, as many as
// Pub/Sub takes, if the claim has room for all aggregates: up to 100 while several tenants are
// active.
package outbox

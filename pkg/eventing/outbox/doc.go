// Package outbox publishes the events of committed transactions. It is a transactional outbox
// (Richardson, "Microservices Patterns", 2018). The relay runs inside the process that writes the
// outbox.
//
// Append writes an event in the transaction that makes the change. After the commit a Relay
// publishes the event, and marks it as published. The relay of the same process knows the event
// already. Any other relay finds it in the table. Any number of relays may share one outbox. Package
// queue has the SQL statements and explains them.
//
// Files, in the order in which an event passes through them:
//
//	append.go        Append writes the event; insert.go has its statements; epoch.go reads the
//	                 owner's present epoch
//	handover.go      passes the event to the relay of the same process, without a claim;
//	                 unresolved.go looks for the events of transactions that may have rolled back
//	relay.go         Relay starts the goroutines and has Wake; options.go has settings and hooks
//	scheduler.go     decides what to claim next
//	claimer.go       claims new events; scanner.go claims retries and rows that a claim missed
//	lastclaims.go    claims once more when Run's context has ended
//	claimsize.go     adapts the size of a claim to what the claims find
//	inflight.go      keeps the leased batches; room.go shares the room for them; shares.go counts
//	                 each tenant's events on their way to the broker
//	tenants.go       detects tenants above their rate; held.go makes the events of these tenants
//	                 wait; savings.go has the events that a tenant's rate allows; turns.go picks the
//	                 tenant of the next turn, and notes the turn's results; turner.go claims the
//	                 events of a turn
//	publisher.go     publishes a batch, and says what a refusal of the broker means
//	settler.go       turns the broker's answer into a result, and writes results into the table
//	leases.go        renews leases; keeps results that could not be written, until their leases end
//	followups.go     keeps the work that one goroutine leaves for another: published versions
//	                 (versions.go), and scans (duescans.go)
//	maintain.go      deletes published events after the retention; reads the backlog
//
// The other files: pause.go pauses a topic that fails, and prober.go probes the topic.
// heartbeat.go writes the relay's row, and computes the snapshot in that row. life.go has what a relay
// knows of the life of the database's server. lockedrows.go reports
// rows of pending events that another session has locked. telemetry.go has the metrics. trace.go has
// the spans.
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
//	An event that its transaction hands over to the relay of the same process is leased from the
//	beginning, if the event before it is published.
//
//	pending    published_at, parked_at are null
//	leased     as pending, and lock_token is set on the aggregate's oldest pending
//	           row, with a locked_at younger than 20 s by the database's clock; a relay
//	           ignores the leases of a process that has ended
//	published  published_at is set
//	parked     parked_at is set, last_error says why
//
// # Lows and lives
//
// A relay remembers snapshots of the database where others remember a position or a time, because
// a transaction with a lower id, or an earlier timestamp, can commit later. A low of some events is a
// snapshot in which none of them was visible yet. So a scan of the rows that the low did not see
// finds these events. followUps and inFlight keep the lows of all unfinished work: new events,
// batches in flight, open handovers, published versions, scans, searches for probes, skipped types
// of paused topics, and held tenants. The earliest of them is the low of the relay, which a heartbeat
// writes into the relay's row of the table of relays. If the relay dies, another relay scans from
// that low.
//
// A life is the time between two starts of the database's server, by a restart, a recovery or a failover.
// A reset of the server's statistics counts as a start, too. After a start, transactions may have ids that
// an earlier snapshot has seen. So a snapshot says nothing about the events of another life. When a
// relay meets a server in a new life, it scans from a low that covers all of its work, and its lists
// begin again. Work that goes on meanwhile keeps its low with the life of that low (datedLow in life.go).
// From then on the relay's first low of the new life takes the place of each low of a former life.
//
// # Invariants
//
//   - A relay sends an aggregate's events in the order of their versions, from the oldest pending
//     event on. It starts a request only after the broker has acknowledged the request before.
//     Hence version n+1 is first sent either behind version n in the same request, or after the
//     acknowledgement of version n.
//   - This order holds even if a relay loses its lease without noticing and another relay takes
//     over. A batch of the first relay begins at the row that was the aggregate's oldest pending
//     row when the first relay claimed the batch, or when the row was written with the lease. So the
//     first relay can only repeat events. It cannot send a version before an earlier version. The
//     order does not depend on the lease, which only keeps repeats rare.
//   - An event is written with a lease only if the statement that writes it sees that the event
//     before it is published, or that there is none. A claim has the same condition for the oldest
//     event of a batch.
//   - Only the relay that has the lease marks events as published. A relay that has lost
//     its lease marks nothing, and the events of its batch are sent again.
//   - A batch whose lease is over is not sent, also if its relay takes a new lease for the same event. An operator may have
//     skipped the event in between.
//   - A parked event blocks its own aggregate, and no other aggregate.
//
// # Goroutines
//
// Four goroutines claim: the first claims new events, the second claims retries and scans,
// the third claims for held tenants, and the fourth claims probes for paused topics. 128
// goroutines publish. One goroutine settles, which means that it writes results into the
// table. One reads the backlog for the metrics. One writes a heartbeat every few seconds, and at once
// when a server refuses a claim. One listens for notifications, and one removes old published events if
// a retention is set.
//
// A heartbeat updates the relay's row in the table of relays, which contains the relay's low.
//
// A slow or failed statement of a scan, a turn, a probe or a heartbeat does not stop the
// claims of new events, with one exception: a server that has been replaced, or whose statistics an
// operator has reset, refuses all claims of a relay until it has answered the relay's next
// heartbeat. Turns and scans do not wait for the other goroutines either. The goroutines leave work
// for each other in followUps. The leased batches are in inFlight.
//
// # Scheduler
//
// Each claiming goroutine is a state machine. claimSchedule, scanSchedule and turnSchedule
// (scheduler.go) compute the next state of the first three goroutines. They compute it from the
// time and the due times, and use no database. The state of the probes is kept in each topic's
// pause (pause.go).
//
//	           row written               nothing due
//	register ───────────────▶ new ──────────────────────▶ idle
//	    │                     │ ▲ ▲                         │
//	    │ statement failed    │ │ └─────────────────────────┘ Wake; a notification; 20 ms after an
//	    └──────────▶ pause ◀──┘ │                             event was marked as published, or at
//	                   │        │ OutageBackoff               once if an event was seen behind it;
//	                   └────────┘                             the poll's time (up to 5 s)
//
//	       ┌──────────▶ retry   when the first retry is due, and every 2.5 to 5 s
//	       │
//	idle ◀─┼──────────▶ scan    page by page, from the earliest snapshot that was asked for. The
//	  ▲    │                    relay asks for a scan if a claim was truncated, or had to skip
//	  │    │                    locked or leased rows; if a batch was handed back or given up, or
//	  │    │                    its lease was lost; if a relay has died; if this relay is new, or
//	  │    │                    meets another server; and if a topic has resumed
//	  │    │
//	  │    └──────────▶ sweep   every 2.5 to 5 s the next 1,000 rows of the whole table
//	  │ OutageBackoff  │
//	  └─────── pause ◀─┘ only the action whose statement failed pauses; the other two go on
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
//	new       claims events that committed   the claim is answered; the claim is sent when
//	          since the last claim, and      there is room for its events in flight
//	          events behind published ones
//	retry     claims due retries             as in state new
//	scan      claims among the next 2,000    as in state new; while retries and pages are
//	          rows that the first snapshot   both due, they alternate
//	          of the scan did not see
//	sweep     claims among 1,000 rows        as in state new
//	turn      claims up to 500 events of     as in state new; a round of turns has at most
//	          the next held tenant           four claims for each held tenant
//	search    claims candidates for a probe  candidates are leased, or there are none
//	probe     publishes the chosen events    each has a result
//	pause     nothing, even if work is due;  its time is over
//	          in the second goroutine only
//	          the action that failed pauses
//	idle      nothing                        the time or a signal that the arrow names
//
// After a pause the failed action is due again. While every topic is paused, the claims of
// new events pause too. A wake-up during a pause of claims or turns takes effect after the pause.
// A statement of a scan may take up to 12 s, and delays the other two actions of its goroutine
// for that time. While a page of a scan is due, the sweep waits. If a page claims
// nothing while tenants are held, the scan pauses for twice the time of the page, 200 ms at most.
// Scans and turns stay idle until the relay has its row in the table of relays.
//
// # Tenants
//
// A broker delivers in about the order of publishing, and consumers apply events in that order. So
// one tenant's event overtakes another tenant's million events only if the relay does not publish
// the million first. Several tenants are active while the relay has met events of more than one
// tenant within the last minute. During that time a claim takes at most 100 events instead of
// 2,000, and a tenant is held if one of these is true:
//
//   - The tenant is above the relay's part of TenantRate. TenantRate is 500 events a second by
//     default, and each living relay has an equal part.
//   - The tenant has more events on their way to the broker than its share.
//   - The tenant has more than 1,500 events in flight, including events that are published and
//     cannot be marked.
//
// A held tenant is released when it has caught up, or when no other tenant is active:
//
//	        too many events while            it has caught up, or
//	        others are active                no other is active
//	served ──────────────────▶ held ─────────────────────────────────▶ served
//
// An event is on its way to the broker from its claim, or from the commit of its handover, until
// the broker has answered. All tenants together share 2,000 such events. A tenant's share is at
// most 500 of these 2,000. Tenants that need fewer events leave the rest to other tenants. While
// the 2,000 are used up, a claim takes at most 50 events, and a tenant with more than 50 events on
// their way is held. Each tenant may always have 50 events on their way. So more than 40 tenants
// can exceed the 2,000 together, up to the 6,000 events that a relay holds.
//
// The events of a held tenant are not handed over.
//
// The share is needed where the broker or the machine takes fewer events per second than
// TenantRate, because no tenant is above its rate there. Without shares the busiest tenants
// would fill the relay, and an event of another tenant would wait behind thousands of events.
//
// Claims, scans and the sweep skip the events of held tenants. Instead, held tenants have turns:
// every 20 ms a separate goroutine claims for one held tenant after the other. Such a claim looks
// for events behind the tenant's published events, or it reads the next page of the tenant's own
// scan. Claims and the common scans have skipped events of the tenant. The tenant's scan finds these
// events, and ends at the snapshot of the last claim. The two kinds of turns alternate. If a turn finds
// nothing behind the published events, more turns read pages before the next turn looks there again,
// eight at most. A turn that finds nothing leaves its share of events to the next turn, and the events
// of other tenants wait behind that larger turn.
//
// A turn takes at most as many events as the tenant's rate allows, and as the tenant's share leaves
// room for. If a turn takes fewer events than the rate allows, the tenant saves up the difference.
// It can save up the events of two rounds of turns, plus as many events as it has on their way to
// the broker. The limit of two rounds prevents a burst after a pause of the relay. The number of
// events on their way is added so that a tenant can fill its share even if the broker takes long to
// answer. If a claim takes more than 50 ms, the tenant gets less than its rate.
//
// The events of each held tenant leave at TenantRate at most, and each relay has an equal part
// of that rate. So a tenant that writes less than TenantRate, and is held because of a backlog
// from an outage, catches up. This holds however many other tenants are held, if the broker
// answers the events of the tenant's share fast enough. A tenant has caught up when its scan is
// complete and either the relay has no other unfinished work of the tenant, or no turn was full
// for five seconds.
//
// Each relay writes the last two tenants that it met into its heartbeat. Another relay may meet
// only events of the busy tenant, and learns from the heartbeat that several tenants are active.
// The relay's low covers skipped events. So if the relay dies, another relay's scan finds the
// events that waited for turns. During a tenant's scan the low stays at the snapshot at which the
// scan began. If the relay dies during that scan, another relay must read all rows since that
// snapshot to find the rows that the dead relay had leased.
//
// Limits:
//
//   - Retries are claimed in the order of their times, for all tenants. They do not count against a
//     tenant's share. While several tenants are active, at most about 500 retries are on their way
//     to the broker.
//   - A relay that meets only one tenant does not hold it.
//   - At most 64 tenants are held at a time.
//   - A claim of a turn reads up to 500 rows of all tenants, and fewer where most rows are of the
//     tenant that has the turn. If the rows of many held tenants are mixed, few of the 500 rows
//     belong to the tenant that has the turn. Then this tenant may get less than its rate.
//
// # Faults
//
// A refusal (INVALID_ARGUMENT for a message sent alone) spends an attempt. If the broker refuses
// a request of several messages, its answer does not say which message is bad. So the relay sends
// the oldest message alone, and then more messages at a time. A refusal counts once, even if the answer of the
// statement that writes it is lost, and the relay claims the event again before it repeats the statement.
//
// Every other failure is an outage. An outage spends no attempt, and the relay tries the aggregate
// again after a jittered pause. A topic is paused by three outages in a row, or by one outage that
// concerns the whole topic. Such an outage means that the topic is missing, forbidden, over its quota
// or in a state that accepts nothing, or that the relay's identity is not accepted. While a topic is
// paused, the relay sends the topic only probes of one event, with a capped, jittered backoff. Other
// topics go on.
//
// Refusals of three different aggregates, with no success since the first of them, also count as
// a fault of the topic, such as its schema or a policy. They pause the topic. From then on
// refusals spend no attempt and park no event. Only the attempts that the first two aggregates
// spent before the pause are lost. The first probe of such a topic is one event. The second probe
// consists of events of up to four aggregates, the third probe of up to sixteen, and each later
// probe of up to 64. Each of these events is sent in a request of its own. The relay prefers
// aggregates that were not refused. A refusal costs the broker nothing. If many events are bad
// although the topic works, one success among the probes shows that the topic works.
//
// If the topic accepts another aggregate's event after a refusal, the refused event is at fault and
// not the topic. Later refusals of the refused event spend its attempts. If only one or two
// aggregates write to a topic and are refused, their events are parked in the end, like a bad event
// among good events. If three aggregates write and all of them are refused, the topic stays paused,
// and the three aggregates wait until another aggregate writes.
//
// A row that another session has locked keeps only its own aggregate from being marked. Settling
// waits 100 ms for the lock, then marks the other batches, and tries the locked batch again while
// the lease of that batch is renewed. If a statement runs out of time before it has marked all
// results, the next statement marks half as many events. In the end that may be only a part of one
// batch. The rest of that batch is sent again.
//
// After Run's context has ended, the relay claims new events for up to a second more, until nothing is in flight. So an event that
// was committed before, and was not handed over, does not wait for another process. A full relay waits for room meanwhile. Due
// retries, events of held tenants and events that only a scan finds do wait: the relay's low, or their retry time, leads another
// relay to them. Publishes and claims in flight get 3 s. Writing their results may take 0.6 s more. If the database hangs, the
// batches whose results were not written stay leased until their leases run out.
//
// # Settings and hooks
//
// Options set the number of attempts and the pauses. Each setting has bounds. There are at least
// two attempts, because with only one attempt a fault of the topic would park the first two
// aggregates that meet it. A pause after a refusal is shorter than queue.MaxRetry, because a retry
// time further away than that counts as due. A pause in an outage is at most 10 s, because with
// longer pauses the events of a killed relay would leave too late. The limits of leases, claims and
// requests are not configurable, because they keep repeats rare, and because the drain at the end
// of Run depends on them.
//
// The hooks OnRefused and OnPaused observe refusals and pauses, in addition to metrics and log.
// OnRefused is called after the statement that writes the refusal to the outbox. It is also called
// if that statement has not written the refusal, because another relay had taken over the lease.
// Each refusal or pause calls its hook at most once. No goroutine that moves events waits for a
// hook. Package hook has the contract.
//
// # Crash points
//
// Where another relay takes over, "Death of a relay" says when. A consumer of package inbox
// ignores the second arrival of an event.
//
//	before the claim commits      nothing happened
//	handed over, not sent         the lease runs out, and another relay sends the event
//	the answer to a COMMIT with   within half a second the relay takes the lease from the event, if the
//	a lease is lost               event is there, and a scan finds it; the relay tries this twice more
//	                              in the next seconds, and 33 s after the row was written; until
//	                              then the relay's low has not seen the event
//	a relay ends while a          the relay takes the lease from the event, if it is there; if the
//	handover is open              transaction commits later, the lease runs out
//	a claim's answer is lost      for 25 s the relay treats leases under its own token as
//	                              ownerless, and scans for the rows that they cover
//	leased, not sent              the lease runs out, and another relay sends the events
//	sent, not acknowledged        another relay sends the events again: they arrive twice
//	acknowledged, not marked      the events arrive twice
//	some batches marked           a statement marks whole batches, or the first versions of one
//	                              batch; the events that it has not marked arrive twice
//	a process of the database     the server ends all sessions and recovers: as after a failover, because
//	crashes                       the server may use some ids of transactions again
//	the primary fails, with a     as for a relay that crashes, because the claim's commit
//	synchronous standby           waited for the standby, as did the commit of a handed over event
//	the primary fails, with an    rows that only the primary had are lost, even if their
//	asynchronous standby          events were sent; if only the primary had an event's mark, the event
//	                              arrives twice, when the lease that the standby has is over
//
// # Death of a relay
//
// The sessions of a killed process end with it. So another relay regards it as gone when its last heartbeat
// is 6 s old and the session of that heartbeat has ended. It sees the end of the session with its next heartbeat,
// plans a heartbeat for that moment, scans from the killed relay's low, and sends the events without waiting
// for their leases: 1 to 6 s after the kill, or when a relay starts if there was no other.
//
// A relay cannot see the end of a process whose machine or network is gone, or that is behind a transaction pooler. Then the events leave
// when their leases have run out, up to 20 s after the kill, and a scan has found them, up to 5 s later. In
// either case another relay takes over the killed relay's row after 15 s without a heartbeat. The earlier scan
// is for speed only.
//
// If a relay is taken for gone by mistake, its events may be sent twice, in order,
// until its next heartbeat. So a heartbeat that has failed is repeated after OutageBackoff, and not after the usual
// five seconds. A stall of the database ends the sessions of living relays. So if a relay's own
// heartbeat is late or has failed, the relay judges by the 15 s alone, for as long as the other relays may
// need for a heartbeat.
//
// # Waking up
//
// A transaction with one event can hand the event over to the relay of its process (see Handover).
// Then no claim is needed, and no other relay is notified. At 1,000 events a second that are handed
// over, a relay makes 44 claims a second instead of 410 to 580.
//
// Otherwise the owner calls Wake after a commit. Wake makes the relay of this process claim at once.
// It also notifies the other relays with a NOTIFY in a separate transaction, at most once a second.
// The business transaction itself has no NOTIFY, because NOTIFY takes a lock that the whole cluster
// shares, until the commit is on disk. So commits with a NOTIFY do not share a flush. In a measurement
// with 32 writers on a disk, NOTIFY reduced the commits per second to between a quarter and a third. A
// relay that cannot LISTEN polls. Every promise of the relay holds with polling alone.
//
// After a claim that was cut off by its limits, the relay claims again at once. Otherwise it polls
// after a jittered pause of up to 100 ms. Each claim in a row that finds nothing doubles the pause,
// up to 5 s. Retries are claimed when they are due, and at least every 5 s.
//
// # Consume and emit
//
// A service that answers events with events applies an event and appends the answer in one
// transaction. The service's inbox commits that transaction. If the inbox has forgotten an event
// that is delivered again, SourceEventID keeps the answer from being appended twice.
// pkg/eventing/emit_test.go has such a service.
//
// # Limits
//
// A relay holds up to 6,000 events with 24 MiB of payloads, events of open handovers included. It
// opens no handovers while it holds 2,000 events or 8 MiB. It also remembers up to 6,000 published
// versions behind which events may follow. If there are more, it drops the oldest versions and
// scans for the events behind them. In addition it holds up to 256 events of paused topics, from
// which probes are chosen. A scan for probes that finds no event is repeated after 20 times its own
// duration, and after 30 s at most.
//
// The newest published event of an aggregate is never purged. The purge only empties its payload, because
// Append derives the next version from the newest event, and an operator may remove a later event that
// is not published.
//
// A request carries one ordering key, hence events of one aggregate. An aggregate has one request
// on its way at a time. So 100 pending versions of one aggregate cost one request, and one version
// each of 100 aggregates costs 100 requests. If an aggregate is behind, and the claim has room for
// all aggregates, a request carries up to 1,000 versions of the aggregate. Pub/Sub takes no more
// messages in one request. While several tenants are active, a request carries up to 100 versions.
package outbox

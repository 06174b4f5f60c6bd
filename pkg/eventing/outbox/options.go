package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// maxAttempts is the default of Options.MaxAttempts.
	maxAttempts = 5
	// leastAttempts is the least value of Options.MaxAttempts. It is 2, because only the refusal of a
	// third aggregate shows that the topic is at fault. With a single attempt the first two aggregates
	// would be parked by then.
	leastAttempts = 2
	// mostAttempts is the largest value of Options.MaxAttempts. It is low enough that an event is
	// parked within about two hours, even at the longest pauses of refusalPause. Until the event is
	// parked, no alert calls an operator.
	mostAttempts = 100

	// mostRefusalPause is the longest pause after a refusal. A retry time further away than
	// queue.MaxRetry counts as due. So mostRefusalPause is a minute less: then no retry is due too
	// early if the database's clock steps back by less than a minute.
	mostRefusalPause = queue.MaxRetry - time.Minute
	// mostOutagePause is the longest pause in an outage. It is short enough that a killed relay's
	// events leave within 30 s even if the first scan for them fails.
	mostOutagePause = 10 * time.Second
)

// refusalPause is the default pause of an aggregate after a refusal of its event.
var refusalPause = backoff.Policy{Base: time.Second, Cap: time.Minute}

// Options has a safe zero value. [NewRelay] clamps values that are out of bounds.
type Options struct {
	// Retention is how long published events stay in the table. 0 means forever.
	Retention time.Duration
	// ListenURL is the URL of the connection on which the relay uses LISTEN. It must lead to the
	// same database, with the same role, as the pool. The connection must keep its session, because
	// LISTEN does not work through a transaction pooler. If ListenURL is empty, the relay connects
	// as the pool does.
	ListenURL string
	// TenantRate is in events per second. Each living relay has an equal part of it. While several
	// tenants are active, a tenant waits for turns if its events at a relay are above the relay's
	// part, or if it has more events on their way to the broker than its share. A share is 500 events
	// at most. The events of a waiting tenant leave at TenantRate at most. TenantRate should be well below the
	// rate at which the slowest consumer applies events. 0 means [DefaultTenantRate]. With
	// [NoTenantRate] no tenant waits.
	TenantRate int
	// Canary is a tenant whose few events only serve for measuring. It does not count as an
	// active tenant, so a tenant is not held only because the canary is active. Empty means that
	// there is no canary.
	Canary string

	// MaxAttempts is how many refusals by the broker make the relay park an event. 0 or less
	// means 5. Other values are clamped to 2…100.
	MaxAttempts int
	// RefusalBackoff is the pause of an aggregate after a refusal of its event. The zero value
	// means a Base of 1 s and a Cap of 1 min. Pauses are clamped to 4 min.
	RefusalBackoff backoff.Policy
	// OutageBackoff is how long claims and heartbeats pause after a failure of the database, and how long a
	// topic and its aggregates pause after a failure of the broker. The zero value means a Base of 200 ms
	// and a Cap of 5 s. Pauses are clamped to 10 s. OutageBackoff does not apply to the writing of
	// results. After a failed write the pause is 5 s at most, whatever the options are, because the
	// leases of the results run out.
	OutageBackoff backoff.Policy

	// The hooks observe refusals and pauses, in addition to metrics and log. Each may be nil. Package
	// hook has their contract. When Run ends, calls that still wait are made until 3.6 s after the end
	// of Run's context.

	// OnRefused receives each refusal that spends an attempt of its event. The relay calls
	// OnRefused after the statement that writes the refusal to the outbox. The refusal that spends
	// the last attempt parks the event. If another relay has taken over the lease before that
	// statement, the statement does not write the refusal, and the other relay sends the event
	// again. OnRefused receives the refusal in this case, too.
	OnRefused func(context.Context, Refusal)
	// OnPaused receives each pause of a topic, and each failed probe that prolongs it.
	OnPaused func(context.Context, Pause)
}

// within returns o with defaults in place of zero values, and with all values within the bounds.
func (o Options) within() Options {
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = maxAttempts
	}
	o.MaxAttempts = min(max(o.MaxAttempts, leastAttempts), mostAttempts)
	o.RefusalBackoff = o.RefusalBackoff.Within(refusalPause, mostRefusalPause)
	o.OutageBackoff = o.OutageBackoff.Within(outagePause, mostOutagePause)
	return o
}

// Refusal is an event that the broker has refused.
type Refusal struct {
	// Event is the refused event without its payload.
	Event eventing.Event
	// Attempt counts from 1. Parked says that this was the last attempt. A parked event blocks
	// its aggregate until an operator acts.
	Attempt int
	Parked  bool
	Err     error
}

// Pause is a topic to which the relay sends only probes. No event is lost.
type Pause struct {
	Topic string
	// Cause is "outage" or "refusals". Err is the last error.
	Cause string
	Err   error
	// Since is when the pause began. Failures is 1 at that time, and each failed probe adds 1.
	Since    time.Time
	Failures int
}

// observeRefusals calls OnRefused for each refusal in written. written has the results of a settling
// statement. It lacks the results that the statement skipped, because a row was locked.
func (r *Relay) observeRefusals(ctx context.Context, written []*unsettled) {
	if r.options.OnRefused == nil {
		return
	}
	for _, u := range written {
		f := u.settlement.Failure
		if f == nil || !f.Refused {
			continue
		}
		e := u.batch.events[u.settlement.Published]
		refusal := Refusal{Event: e.Event, Attempt: e.Refusals + 1, Parked: f.Park, Err: u.report.err}
		refusal.Event.Payload = nil
		r.calls.Add(ctx, "OnRefused", func(ctx context.Context) { r.options.OnRefused(refusal.Event.InTrace(ctx), refusal) })
	}
}

// observePause calls OnPaused if it is set.
func (r *Relay) observePause(ctx context.Context, p Pause) {
	if r.options.OnPaused != nil {
		r.calls.Add(ctx, "OnPaused", func(ctx context.Context) { r.options.OnPaused(ctx, p) })
	}
}

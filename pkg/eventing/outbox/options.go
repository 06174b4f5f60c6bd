package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// maxAttempts is how often an event is refused before it is parked.
	maxAttempts = 5
	// A third aggregate's refusal shows that the topic is at fault. With a single attempt the
	// first two would be parked by then.
	leastAttempts = 2
	// mostAttempts parks an event within about two hours even at the longest pauses that
	// rejectionPause has: until it is parked, no alert says that it needs a person.
	mostAttempts = 100

	// mostRejectionPause leaves a minute to clocks that step back: a retry time further
	// away than queue.MaxRetry counts as none.
	mostRejectionPause = queue.MaxRetry - time.Minute
	// mostOutagePause is short enough that a killed relay's events leave within 30 s although
	// the first scan for them has failed.
	mostOutagePause = 10 * time.Second
)

// rejectionPause is the pause of an aggregate whose event was refused.
var rejectionPause = backoff.Policy{Base: time.Second, Cap: time.Minute}

// Options has a safe zero value. [NewRelay] clamps what lies outside of its bounds.
type Options struct {
	// Retention is how long published events stay in the table; 0 is for ever.
	Retention time.Duration
	// ListenURL connects to the same database, as the same role, in a way that keeps a
	// session: LISTEN does not work through a transaction pooler. Empty means the pool's
	// own way.
	ListenURL string
	// TenantRate is in events per second. While several tenants are active, a tenant above
	// it, or with more than its share of the events on their way to the broker, which is 500 at
	// most, waits for turns, and its events leave at this rate at most, of which each relay has an
	// equal share. It should be well below the rate at which the slowest consumer applies events.
	// 0 is [DefaultTenantRate], and with [NoTenantRate] no tenant waits.
	TenantRate int
	// Canary is a tenant with a few events that only measure. It does not count among the active
	// tenants, so that another one next to it is not held. Empty: there is none.
	Canary string

	// MaxAttempts is how many times the broker refuses an event before the relay parks it.
	// 0 or less is 5; it is clamped to 2…100.
	MaxAttempts int
	// RejectionBackoff is the pause of an aggregate after a refusal of its event. Zero is
	// 1 s to 1 min; it is clamped to 4 min.
	RejectionBackoff backoff.Policy
	// OutageBackoff is the pause of claims after a failure of the database, and of a topic
	// and its aggregates after a failure of the broker. Zero is 200 ms to 5 s; it is
	// clamped to 10 s. Results of publishes are written again after pauses of up to 5 s
	// whatever it says, because their leases run out.
	OutageBackoff backoff.Policy

	// The hooks observe errors and discards besides metrics and log. Each may be nil.
	// Package hook has their contract. At the end of Run they have the rest of its 3.8 seconds.

	// OnRefused receives each refusal that counts against its event, the last of which
	// parks it, after it was written to the outbox. Where another relay has taken over the
	// lease meanwhile, that relay decides again.
	OnRefused func(context.Context, Refusal)
	// OnPaused receives each pause of a topic, and each failed probe that prolongs it.
	OnPaused func(context.Context, Pause)
}

// within returns o with its zero values replaced, within the bounds.
func (o Options) within() Options {
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = maxAttempts
	}
	o.MaxAttempts = min(max(o.MaxAttempts, leastAttempts), mostAttempts)
	o.RejectionBackoff = o.RejectionBackoff.Within(rejectionPause, mostRejectionPause)
	o.OutageBackoff = o.OutageBackoff.Within(outagePause, mostOutagePause)
	return o
}

// Refusal is an event that the broker has refused.
type Refusal struct {
	// Event is without its payload.
	Event eventing.Event
	// Attempt counts from 1. Parked says that it was the last: the event holds up its
	// aggregate until an operator acts.
	Attempt int
	Parked  bool
	Err     error
}

// Pause is a topic to which the relay sends nothing but probes. Nothing is lost.
type Pause struct {
	Topic string
	// Cause is "outage" or "refusals", and Err the last error.
	Cause string
	Err   error
	// Since is the same for each failed probe of one pause. Failures counts them, from 1.
	Since    time.Time
	Failures int
}

// observeRefusals calls OnRefused for the refusals among written results.
func (r *Relay) observeRefusals(ctx context.Context, written []*unsettled) {
	if r.options.OnRefused == nil {
		return
	}
	for _, u := range written {
		f := u.settlement.Failure
		if f == nil || !f.Rejected {
			continue
		}
		e := u.batch.events[u.settlement.Published]
		refusal := Refusal{Event: e.Event, Attempt: e.Rejections + 1, Parked: f.Park, Err: u.report.err}
		refusal.Event.Payload = nil
		r.calls.Add(ctx, "OnRefused", func(ctx context.Context) { r.options.OnRefused(refusal.Event.InTrace(ctx), refusal) })
	}
}

// observePause calls OnPaused.
func (r *Relay) observePause(ctx context.Context, p Pause) {
	if r.options.OnPaused != nil {
		r.calls.Add(ctx, "OnPaused", func(ctx context.Context) { r.options.OnPaused(ctx, p) })
	}
}

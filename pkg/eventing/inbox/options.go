package inbox

import (
	"cmp"
	"context"
	"time"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/checkpoint"
)

const (
	// maxAttempts is the default of Options.MaxAttempts.
	maxAttempts = 5
	// mostAttempts bounds Options.MaxAttempts, and mostPause bounds RetryBackoff and RepairBackoff. Their
	// product is below half of maxExtension, so that the client keeps an event's lease to its last attempt.
	mostAttempts = 100
	mostPause    = 5 * time.Minute
	// mostOutagePause is the upper bound of Options.OutageBackoff. The consumer must show every
	// minute that it is alive, and the bound leaves time for one statement in each minute.
	mostOutagePause = 30 * time.Second
)

var (
	// failRetry is the default of Options.RetryBackoff, and the pause before a dead letter is written
	// again, whatever the options are.
	failRetry = backoff.Policy{Base: 200 * time.Millisecond, Cap: 5 * time.Second}
	// repairRetry and outageRetry are the defaults of Options.RepairBackoff and Options.OutageBackoff.
	repairRetry = backoff.Policy{Base: 200 * time.Millisecond, Cap: 10 * time.Second}
	outageRetry = backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}
)

// Options are the settings of a Consumer. The zero value is safe. [NewConsumer] clamps attempts
// and pauses to their bounds.
type Options struct {
	// Bytes bounds the memory of the messages in hand. 0 or less means 64 MiB.
	Bytes int64
	// Retention is how long the row of a settled event is kept, whichever consumer of the database has
	// settled it. It must be longer than the broker can deliver a message again. 0 or less means
	// [Retention].
	Retention time.Duration
	// Streams are the [Streams] of the client's connection. If Streams is nil, each stream asks
	// for the whole budget.
	Streams *Streams
	// Checkpoints stores the offset of each batch, in the batch's transaction. If Checkpoints is
	// nil, no offset is saved.
	Checkpoints *checkpoint.Store

	// MaxAttempts is how many times an event fails by its own fault before it is dead-lettered. 0
	// or less means 5. A value above 100 counts as 100.
	MaxAttempts int
	// RetryBackoff is the pause of an aggregate after a failure of its event. A zero Base means 200
	// ms, and a zero Cap means 5 s. Each is limited to 5 min.
	RetryBackoff backoff.Policy
	// RepairBackoff is the pause before another repair of a gap that the last repair did not
	// close. A zero Base means 200 ms, and a zero Cap means 10 s. Each is limited to 5 min.
	RepairBackoff backoff.Policy
	// OutageBackoff is the pause while the database or the subscription is unavailable. A zero Base
	// means 100 ms, and a zero Cap means 5 s. Each is limited to 30 s.
	OutageBackoff backoff.Policy

	// The hooks below report dead letters and divergences, in addition to metrics and log. Each may
	// be nil. Package hook has their contract. At the end of Run, the calls that have not been made
	// yet get half a second in all.

	// OnDeadLetter is called for each message that was dead-lettered, after its inbox row was
	// marked dead.
	OnDeadLetter func(context.Context, DeadLetter)
	// OnDiverged is called for each event that shows that its owner has lost commits. The event has
	// no payload. The consumer repairs the row with the owner's state. If the consumer restarts
	// before the repair is done, it may report the event once more.
	OnDiverged func(context.Context, eventing.Event)
}

// within returns o with defaults in place of zero values, and with attempts and pauses clamped to
// their bounds.
func (o Options) within() Options {
	o.Bytes, o.Retention = cmp.Or(max(0, o.Bytes), maxBytes), cmp.Or(max(0, o.Retention), Retention)
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = maxAttempts
	}
	o.MaxAttempts = min(o.MaxAttempts, mostAttempts)
	o.RetryBackoff = o.RetryBackoff.Within(failRetry, mostPause)
	o.RepairBackoff = o.RepairBackoff.Within(repairRetry, mostPause)
	o.OutageBackoff = o.OutageBackoff.Within(outageRetry, mostOutagePause)
	return o
}

// DeadLetter is a message that the consumer has put into the dead-letter topic.
type DeadLetter struct {
	// MessageID is the broker's id of the dead-lettered message.
	MessageID string
	// Event has no payload. It is the zero Event if the message has no event.
	Event eventing.Event
	// Reason is the error for which the message was dead-lettered. Attempts is how many failures
	// of the event were counted.
	Reason   error
	Attempts int
}

// observeDeadLetter calls OnDeadLetter.
func (c *Consumer) observeDeadLetter(ctx context.Context, d *delivery, reason error, attempts int) {
	if c.options.OnDeadLetter == nil {
		return
	}
	dead := DeadLetter{MessageID: d.message().ID, Event: d.event(), Reason: reason, Attempts: attempts}
	dead.Event.Payload = nil
	c.calls.Add(ctx, "OnDeadLetter", func(ctx context.Context) { c.options.OnDeadLetter(dead.Event.InTrace(ctx), dead) })
}

// observeDivergence calls OnDiverged.
func (c *Consumer) observeDivergence(ctx context.Context, e eventing.Event) {
	if c.options.OnDiverged == nil {
		return
	}
	e.Payload = nil
	c.calls.Add(ctx, "OnDiverged", func(ctx context.Context) { c.options.OnDiverged(e.InTrace(ctx), e) })
}

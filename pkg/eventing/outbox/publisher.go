package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// publisher sends the events of one aggregate, in order.
//
// It calls the gRPC method Publish itself instead of using the client's Publisher. So a request
// contains only successive versions of one aggregate, and ends when its context ends. No ordering
// key is ever left paused. (The client's Publisher goes on for 60 s after its caller has given
// up, and its message may arrive after later ones.)
type publisher struct {
	client *vkit.TopicAdminClient
	topics map[string]string
	log    *slog.Logger
}

var topicName = regexp.MustCompile(`^projects/[^/]+/topics/[^/]+$`)

// checkTopics returns an error unless each topic is named in full.
func (p publisher) checkTopics() error {
	for _, aggregateType := range slices.Sorted(maps.Keys(p.topics)) {
		if name := p.topics[aggregateType]; !topicName.MatchString(name) {
			return fmt.Errorf("topic of %q: %q is not projects/PROJECT/topics/TOPIC", aggregateType, name)
		}
	}
	return nil
}

const (
	// maxRequestMessages is how many messages Pub/Sub takes in a request.
	maxRequestMessages = 1000
	// maxRequestBytes is below Pub/Sub's limit of 10 MB.
	maxRequestBytes = 8 << 20
	// attributeBytes is more than a message takes without its payload and the texts of its event. The rest
	// is the names of the attributes, ids, numbers, times and the encoding.
	attributeBytes = 512
)

// report is the result of publishing a batch.
type report struct {
	// published is how many events of the batch, from the first on, the broker has acknowledged.
	published int
	requests  int
	// err is the failure of the first unpublished event, or nil. Events behind that event were not sent, or
	// it is unknown whether they arrived.
	err error
	// refused is true if the broker refused the first unpublished event. If refused is false, err is an
	// outage.
	refused bool
	wait    time.Duration // after an outage, before the next try
	took    time.Duration
	ended   time.Time
}

// publish sends the events of b in version order, in as few requests as the limits allow. It
// starts a request only after the request before was acknowledged, and stops at the first
// failure. It starts no request after ctx has ended, if pause does not admit the batch, or if
// the lease may end before the request does. flying is the context of requests in flight.
func (p publisher) publish(ctx, flying context.Context, b *leasedBatch, pause *topicPause) (rep report) {
	start := time.Now()
	defer func() {
		rep.ended = time.Now()
		rep.took = rep.ended.Sub(start)
	}()
	batch := b.events
	topic, ok := p.topics[batch[0].AggregateType]
	if !ok {
		return report{refused: true, err: fmt.Errorf("no topic for aggregate type %q", batch[0].AggregateType)}
	}
	for most := maxRequestMessages; len(batch) > 0; {
		if ctx.Err() != nil || !pause.admits(b.probe) || !b.validFor(publishTimeout) {
			return rep
		}
		n := min(most, fitting(batch))
		err := p.request(flying, topic, batch[:n])
		rep.requests++
		if n > 1 && isRefusal(err) {
			// The answer does not say which event of the request is bad. So the oldest event is
			// sent alone, and then more events at a time, because the other events may be good.
			n, most = 1, 1
			err = p.request(flying, topic, batch[:n])
			rep.requests++
		}
		if err != nil {
			rep.err, rep.refused = err, isRefusal(err)
			return rep
		}
		rep.published += n
		batch = batch[n:]
		most = min(maxRequestMessages, 2*most)
	}
	return rep
}

// fitting returns how many events of r, from the first on, fit into one request by their size in
// bytes. It returns at least 1. The aggregate id counts twice, because it is also the ordering key.
func fitting(r queue.Batch) int {
	size := 0
	for i, e := range r {
		size += attributeBytes + len(e.Payload) + 2*len(e.AggregateID) + len(e.AggregateType) + len(e.Type) + len(e.TenantID) + len(e.TraceParent)
		if i > 0 && size > maxRequestBytes {
			return i
		}
	}
	return len(r)
}

// request publishes batch in one request. The broker accepts the whole request or nothing of it.
func (p publisher) request(ctx context.Context, topic string, batch queue.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	req := &pubsubpb.PublishRequest{Topic: topic, Messages: make([]*pubsubpb.PubsubMessage, len(batch))}
	for i, e := range batch {
		req.Messages[i] = e.Message()
	}
	ctx, span := startSend(ctx, topic, batch)
	// The client must not retry, because only the relay knows about the lease.
	resp, err := p.client.Publish(ctx, req, gax.WithRetry(nil))
	endSend(span, err)
	if p.log.Enabled(ctx, slog.LevelDebug) {
		p.logPublished(ctx, batch, resp.GetMessageIds())
	}
	return err
}

// logPublished logs each event with the id of its message. With that id an operator finds the log lines
// of the consumer and of Pub/Sub about the event.
func (p publisher) logPublished(ctx context.Context, batch queue.Batch, ids []string) {
	for i, id := range ids[:min(len(ids), len(batch))] {
		e := batch[i]
		p.log.DebugContext(e.InTrace(ctx), "event published", append(e.LogAttrs(), "message_id", id)...)
	}
}

// isRefusal reports whether the broker refused the message itself. Any other error is a fault
// of the network, the topic or the quota, which passes with time or is repaired by an operator.
func isRefusal(err error) bool {
	return err != nil && status.Code(err) == codes.InvalidArgument
}

// isTopicFault reports whether err concerns every message of the topic.
func isTopicFault(err error) bool {
	switch status.Code(err) {
	case codes.NotFound, codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted, codes.FailedPrecondition:
		return true
	default:
		return false
	}
}

// send publishes a batch. If the batch has a topic, send passes the result to the topic's pause.
// ctx and flying are as in publish.
func (r *Relay) send(ctx, flying context.Context, b *leasedBatch) report {
	if b.unresolved != nil {
		return report{}
	}
	p := r.pauses[b.events[0].AggregateType]
	rep := r.publisher.publish(ctx, flying, b, p)
	if p != nil {
		r.updatePause(ctx, flying, p, b, &rep)
	}
	return rep
}

// updatePause passes the result of a batch to its topic's pause. If a refusal is the topic's
// fault, updatePause changes rep so that it counts as an outage.
func (r *Relay) updatePause(ctx, flying context.Context, p *topicPause, b *leasedBatch, rep *report) {
	key := b.events[0].Key()
	if rep.published > 0 && p.succeeded(key) {
		r.log.InfoContext(ctx, "relay goes on", "topic", p.topic)
		r.followUps.topicResumed(p.types)
	}
	paused := false
	switch {
	case rep.refused:
		v := p.refusal(key, b.probe)
		rep.refused, rep.wait, paused = v.onEvent, v.wait, v.paused
		if v.resumed {
			r.followUps.topicResumed(p.types)
		}
	case rep.err != nil && flying.Err() == nil:
		rep.wait, paused = p.failed(rep.err, b.probe)
	case rep.published == 0 && b.probe != 0:
		p.postpone(b.probe, 0)
	}
	if paused {
		r.reportPause(ctx, p, rep.err)
	}
	if p.paused() {
		signal(r.wakeProbes)
	}
}

// refuse returns the failure of a refused event. The event is retried, or parked if this was its
// last attempt.
func (r *Relay) refuse(ctx context.Context, e queue.Event, reason error) *queue.Failure {
	attempt := e.Refusals + 1
	park := attempt >= r.options.MaxAttempts
	level := slog.LevelWarn
	if park {
		level = slog.LevelError
	}
	if p := r.pauses[e.AggregateType]; park && p != nil {
		p.forget(e.Key())
	}
	r.log.Log(e.InTrace(ctx), level, "broker refused event", append(e.LogAttrs(), "attempt", attempt, "parked", park, "error", reason)...)
	return &queue.Failure{Reason: reason.Error(), RetryIn: r.options.RefusalBackoff.Delay(attempt), Refused: true, Park: park}
}

// reportPause logs a pause that has begun or goes on, and passes it to observePause. It does nothing if
// the topic has resumed meanwhile.
func (r *Relay) reportPause(ctx context.Context, p *topicPause, err error) {
	cause, since := p.reason()
	if since.IsZero() {
		return
	}
	failures := p.failures()
	r.log.WarnContext(ctx, "relay is held up, nothing is lost", "topic", p.topic, "cause", cause,
		"paused_since", since, "held_up_ms", time.Since(since).Milliseconds(), "failures", failures, "error", err)
	r.observePause(ctx, Pause{Topic: p.topic, Cause: cause, Since: since, Failures: failures, Err: err})
}

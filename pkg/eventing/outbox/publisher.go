package outbox

import (
	"context"
	"fmt"
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
// It calls the Publish method itself instead of using the client's Publisher. So a request
// is exactly some successive versions of one aggregate, and it ends when its context does.
// (The client's Publisher goes on for 60 s after its caller has given up, and its message
// may land behind later ones.) No key is ever left paused.
type publisher struct {
	client *vkit.TopicAdminClient
	topics map[string]string
}

const (
	// maxRequestMessages is how many messages Pub/Sub takes in a request.
	maxRequestMessages = 1000
	// maxRequestBytes is under Pub/Sub's 10 MB, with room for attributes.
	maxRequestBytes = 8 << 20
	// attributeBytes is a generous estimate for the attributes of one message.
	attributeBytes = 1 << 10
)

// report is the result of publishing a batch. Its first published events are acknowledged.
// err, if any, is why the next event is not: a rejection of that event if rejected, else an
// outage. The events behind it were not sent, or may or may not have arrived.
type report struct {
	published int
	requests  int
	err       error
	rejected  bool
	wait      time.Duration // after an outage, before the next try
	took      time.Duration
	ended     time.Time
}

// publish sends the events of h in version order, in as few requests as the limits allow,
// each only after the one before was acknowledged. It stops at the first failure, and
// starts no request after ctx has ended, while pause does not admit it, or with a lease
// that may end before the request. flying is the context of requests in flight.
func (p publisher) publish(ctx, flying context.Context, h *leasedBatch, pause *topicPause) (rep report) {
	start := time.Now()
	defer func() {
		rep.ended = time.Now()
		rep.took = rep.ended.Sub(start)
	}()
	batch := h.events
	topic, ok := p.topics[batch[0].AggregateType]
	if !ok {
		return report{rejected: true, err: fmt.Errorf("no topic for aggregate type %q", batch[0].AggregateType)}
	}
	for most := maxRequestMessages; len(batch) > 0; {
		if ctx.Err() != nil || !pause.admits(h.probe) || !h.validFor(publishTimeout) {
			return rep
		}
		n := min(most, fitting(batch))
		err := p.request(flying, topic, batch[:n])
		rep.requests++
		if n > 1 && isRejection(err) {
			// A refused request does not tell which of its events is bad. The oldest
			// goes alone, and then more at a time, because the others may be sound.
			n, most = 1, 1
			err = p.request(flying, topic, batch[:n])
			rep.requests++
		}
		if err != nil {
			rep.err, rep.rejected = err, isRejection(err)
			return rep
		}
		rep.published += n
		batch = batch[n:]
		most = min(maxRequestMessages, 2*most)
	}
	return rep
}

// fitting is how many events fit into one request by their bytes: at least one.
func fitting(r queue.Batch) int {
	size := 0
	for i, e := range r {
		size += len(e.Payload) + len(e.AggregateID) + attributeBytes
		if i > 0 && size > maxRequestBytes {
			return i
		}
	}
	return len(r)
}

// request publishes batch in one request, which the broker takes whole or not at all.
func (p publisher) request(ctx context.Context, topic string, batch queue.Batch) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	req := &pubsubpb.PublishRequest{Topic: topic, Messages: make([]*pubsubpb.PubsubMessage, len(batch))}
	for i, e := range batch {
		req.Messages[i] = e.Message()
	}
	ctx, span := startSend(ctx, topic, batch)
	// The client must not retry: only the relay knows about the lease.
	_, err := p.client.Publish(ctx, req, gax.WithRetry(nil))
	endSend(span, err)
	return err
}

// isRejection reports whether the broker refused the message itself. Any other error is a
// fault of the network, the topic or the quota, which time or an operator repairs.
func isRejection(err error) bool {
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

// send publishes a batch and gives the result to its topic's pause, if it has a topic. ctx
// and flying are those of publish.
func (r *Relay) send(ctx, flying context.Context, h *leasedBatch) report {
	p := r.pauses[h.events[0].AggregateType]
	rep := r.publisher.publish(ctx, flying, h, p)
	if p != nil {
		r.updatePause(ctx, flying, p, h, &rep)
	}
	return rep
}

// updatePause gives the result of a batch to its topic's pause. It turns a refusal that is the
// topic's fault into an outage.
func (r *Relay) updatePause(ctx, flying context.Context, p *topicPause, h *leasedBatch, rep *report) {
	key := h.events[0].Key()
	if rep.published > 0 && p.succeeded(key) {
		r.log.InfoContext(ctx, "relay goes on", "topic", p.topic)
		r.followUps.topicResumed()
	}
	paused := false
	switch {
	case rep.rejected:
		v := p.refusal(key, h.probe)
		rep.rejected, rep.wait, paused = v.onEvent, v.wait, v.paused
		if v.resumed {
			r.followUps.topicResumed()
		}
	case rep.err != nil && flying.Err() == nil:
		rep.wait, paused = p.failed(rep.err, h.probe)
	case rep.published == 0 && h.probe != 0:
		p.postpone(h.probe, 0)
	}
	if paused {
		cause, since := p.reason()
		failures := p.failures()
		r.log.WarnContext(ctx, "relay is held up, nothing is lost", "topic", p.topic, "cause", cause,
			"paused_since", since, "failures", failures, "error", rep.err)
		if !since.IsZero() { // it has not resumed meanwhile
			r.observePause(ctx, Pause{Topic: p.topic, Cause: cause, Since: since, Failures: failures, Err: rep.err})
		}
	}
	if p.paused() {
		signal(r.wakeProbes)
	}
}

package localpubsub_test

import (
	"fmt"
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// checker checks the deliveries of a subscription against the messages
// published to it. It knows only the answers that the client received.
type checker struct {
	ordered, exactlyOnce, counted bool
	messages                      map[string]*fate // by id
	last                          map[string]*fate // by key: delivered last
	returned                      bool             // a stream's end ends its leases, perhaps before the client sees it
	blind                         bool             // responses with deliveries may have been lost
	complaints                    []string
}

// fate is the history of one message, as the client knows it.
type fate struct {
	id         uint64
	key        string
	accepted   bool
	deliveries int
	failures   int32     // nacks and missed deadlines, as far as the client knows them
	acked      bool      // an acknowledgement was sent that may have counted
	unsure     bool      // a call about it failed that may have counted
	confirmed  bool      // an exactly-once acknowledgement was answered with OK
	consumer   any       // the consumer of its last delivery
	lease      string    // the ack id of its current lease; empty: not leased
	until      time.Time // the lease's end
}

func newChecker(s *pubsubpb.Subscription, returned bool) *checker {
	return &checker{
		returned: returned,
		ordered:  s.GetEnableMessageOrdering(), exactlyOnce: s.GetEnableExactlyOnceDelivery(),
		counted: s.GetDeadLetterPolicy() != nil, messages: map[string]*fate{}, last: map[string]*fate{},
	}
}

func (c *checker) complainf(format string, args ...any) {
	c.complaints = append(c.complaints, fmt.Sprintf(format, args...))
}

func (c *checker) message(id string) *fate {
	f := c.messages[id]
	if f == nil {
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			c.complainf("message id %q is no number", id)
		}
		f = &fate{id: n}
		c.messages[id] = f
	}
	return f
}

func (c *checker) accepted(ids []string) {
	for _, id := range ids {
		f := c.message(id)
		if f.accepted {
			c.complainf("id %s was given twice", id)
		}
		f.accepted = true
	}
}

func (c *checker) received(m *pubsubpb.ReceivedMessage, consumer any, now time.Time) {
	f := c.message(m.GetMessage().GetMessageId())
	f.key = m.GetMessage().GetOrderingKey()
	f.deliveries++
	if c.exactlyOnce && f.confirmed {
		c.complainf("%d came again after its acknowledgement was confirmed", f.id)
	}
	if c.exactlyOnce && f.lease != "" && f.key == "" && !c.returned && !f.unsure {
		c.complainf("%d came again while it was leased", f.id)
	}
	if c.ordered && f.key != "" {
		c.checkOrder(f)
		c.checkConsumer(f, consumer)
	}
	c.checkAttempt(f, m.GetDeliveryAttempt())
	f.lease, f.until, f.consumer = m.GetAckId(), now.Add(10*time.Second), consumer
}

// checkOrder lets a key go back to any earlier message, but forward only to the
// next message after the last one; acknowledged and dead-lettered messages may
// be left out. It checks nothing while deliveries may have been lost on the
// way.
func (c *checker) checkOrder(f *fate) {
	last := c.last[f.key]
	c.last[f.key] = f
	if c.blind {
		return
	}
	after := uint64(0)
	if last != nil {
		after = last.id
	}
	for _, other := range c.messages {
		if other.key == f.key && other.id > after && other.id < f.id && !other.acked && !c.counted && other.deliveries > 0 {
			c.complainf("key %s: %d came after %d, leaving out %d", f.key, f.id, after, other.id)
		}
	}
	for _, other := range c.messages {
		if other.key == f.key && other.id > f.id && other.deliveries > 0 && f.deliveries == 1 {
			c.complainf("key %s: %d came for the first time after %d", f.key, f.id, other.id)
		}
	}
}

// checkConsumer requires that only one consumer at a time has messages of a
// key. A redelivery ends the leases of the later messages of its key.
func (c *checker) checkConsumer(f *fate, consumer any) {
	for _, other := range c.messages {
		if other.id < f.id && other.key == f.key && other.lease != "" && other.consumer != consumer && !other.unsure && !c.returned && !c.blind {
			c.complainf("key %s: %d went to one consumer while another had %d", f.key, f.id, other.id)
		}
	}
}

func (c *checker) checkAttempt(f *fate, attempt int32) {
	switch {
	case !c.counted && attempt != 0:
		c.complainf("%d has attempt %d without a dead letter policy", f.id, attempt)
	case c.counted && (attempt < 1 || attempt > 5):
		c.complainf("%d has attempt %d of 5", f.id, attempt)
	case c.counted && f.key == "" && !c.blind && !c.returned && !f.unsure && !f.acked && attempt != f.failures+1:
		c.complainf("%d has attempt %d after %d failures", f.id, attempt, f.failures)
	case c.counted && f.key == "" && !c.returned && !f.unsure && attempt <= f.failures:
		c.complainf("%d has attempt %d after at least %d failures", f.id, attempt, f.failures)
	}
}

// acked records acknowledgements. One with a lost answer may have counted.
func (c *checker) acked(messages []*pubsubpb.ReceivedMessage, err error) {
	refused := map[string]string{}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			refused = info.GetMetadata()
		}
	}
	answered := err == nil || len(refused) > 0
	for _, m := range messages {
		f := c.message(m.GetMessage().GetMessageId())
		f.unsure = f.unsure || err != nil
		if f.lease == m.GetAckId() {
			f.lease = ""
		}
		if refused[m.GetAckId()] != "" {
			continue
		}
		f.acked = true
		f.confirmed = f.confirmed || answered && c.exactlyOnce
	}
}

// modified records nacks and extensions. A failed one may have counted.
func (c *checker) modified(messages []*pubsubpb.ReceivedMessage, d time.Duration, now time.Time, err error) {
	for _, m := range messages {
		f := c.message(m.GetMessage().GetMessageId())
		f.unsure = f.unsure || err != nil
		if f.lease != m.GetAckId() || err != nil {
			continue
		}
		if d == 0 {
			f.failures++
			f.lease = ""
			continue
		}
		f.until = now.Add(d)
	}
}

// passed counts the deadlines that were missed.
func (c *checker) passed(now time.Time) {
	for _, f := range c.messages {
		if f.lease != "" && !f.until.After(now) {
			f.failures++
			f.lease = ""
		}
	}
}

// lostSome records that the server may have sent deliveries that the client
// never saw.
func (c *checker) lostSome() { c.blind = true }

func (c *checker) deadLettered(dead []*pubsubpb.ReceivedMessage) {
	for _, m := range dead {
		if n := m.GetMessage().GetAttributes()["CloudPubSubDeadLetterSourceDeliveryCount"]; n != "5" {
			c.complainf("a dead letter after %s attempts", n)
		}
	}
	if !c.blind && len(dead) == 0 {
		for _, f := range c.messages {
			if f.key == "" && f.failures >= 5 && !f.acked {
				c.complainf("%d failed %d times and is no dead letter", f.id, f.failures)
			}
		}
	}
	// Dead letters have new ids, so they are only counted: each message that
	// was never acknowledged must be one of them.
	missing := 0
	for _, f := range c.messages {
		if f.accepted && !f.acked {
			missing++
		}
	}
	if missing > len(dead) {
		c.complainf("%d messages were never acknowledged, and there are %d dead letters", missing, len(dead))
	}
}

// verdict runs after all messages have been received.
func (c *checker) verdict() {
	for _, f := range c.messages {
		if f.accepted && !f.acked && !c.counted {
			c.complainf("%d of key %q is lost after %d deliveries", f.id, f.key, f.deliveries)
		}
	}
}

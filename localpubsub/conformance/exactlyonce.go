package conformance

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// These are the reasons for which exactly-once delivery refuses an acknowledgement id. invalidAckID
// means that the id is not valid, or no longer valid. unorderedAckID means that the id is out of
// order.
const (
	invalidAckID   = "PERMANENT_FAILURE_INVALID_ACK_ID"
	unorderedAckID = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
)

func exactlyOnce() area {
	source := page("exactly-once-delivery")
	return area{"exactly-once delivery", []Behaviour{
		{Name: "exactly-once: a stale acknowledgement fails and says so", Source: source, try: staleAckFails},
		{Name: "exactly-once: a stale extension fails and says so", Source: source, try: staleExtensionFails},
		{Name: "exactly-once: an acknowledgement after the deadline fails", Source: source, try: expiredAckFails},
		{Name: "exactly-once: an acknowledgement after a nack fails", Source: source, try: nackedAckFails},
		{Name: "exactly-once: an error names the failed ids, and the others count", Source: source, try: errorNamesFailedIDs},
		{Name: "exactly-once: a message does not come again before its deadline", Source: rpc("Subscription"), try: exactLeaseHolds},
		{Name: "exactly-once: an acknowledged message does not come again", Source: rpc("Subscription"), try: exactAckIsKept},
		{Name: "exactly-once: a message published twice is two messages", Source: rpc("Subscription"), try: exactCopiesAreDistinct},
		{
			Name:   "exactly-once: a key's messages are acknowledged in order",
			Source: rpc("StreamingPullResponse.AcknowledgeConfirmation"), try: exactKeyIsAcknowledgedInOrder,
		},
		{Name: "exactly-once: a key keeps its order after a nack", Source: source, try: exactKeyKeepsOrder},
	}}
}

// exactly publishes messages to a topic with a new exactly-once subscription, and returns a stream
// of the subscription.
func (t *trial) exactly(data ...string) *stream {
	topic := t.topic()
	s := t.stream(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, EnableExactlyOnceDelivery: true}))
	t.publish(topic, texts("", data...)...)
	return s
}

// failures returns the ids that err names, with the reason for each.
func failures(err error) map[string]string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetMetadata()
		}
	}
	return nil
}

// rejected ends the trial unless err reports the id as invalid.
func (t *trial) rejected(what string, err error, id string) {
	t.code(what, err, codes.InvalidArgument)
	equal(t, what+": what the error's ErrorInfo says of the id", failures(err)[id], invalidAckID)
}

func staleAckFails(t *trial) {
	s := t.exactly("a")
	stale := s.one()
	s.expire(stale)
	fresh := s.one()
	t.rejected("stale acknowledgement", t.tryAck(s.subscription, stale.GetAckId()), stale.GetAckId())
	t.code("fresh acknowledgement", t.tryAck(s.subscription, fresh.GetAckId()), codes.OK)
}

func staleExtensionFails(t *trial) {
	s := t.exactly("a")
	stale := s.one()
	s.expire(stale)
	fresh := s.one()
	t.rejected("stale extension", t.tryExtend(s.subscription, 20, stale.GetAckId()), stale.GetAckId())
	t.code("fresh extension", t.tryExtend(s.subscription, 20, fresh.GetAckId()), codes.OK)
}

func expiredAckFails(t *trial) {
	topic := t.topic()
	subscription := t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, EnableExactlyOnceDelivery: true})
	t.publish(topic, text("a"))
	a := t.pull(subscription, 1)[0]
	t.extend(subscription, 1, a)
	t.await(2 * time.Second) // no consumer pulls meanwhile
	t.rejected("late acknowledgement", t.tryAck(subscription, a.GetAckId()), a.GetAckId())
	t.pull(subscription, 1)
}

func nackedAckFails(t *trial) {
	s := t.exactly("a")
	stale := s.one()
	s.nack(stale)
	s.one()
	t.rejected("acknowledgement of what was nacked", t.tryAck(s.subscription, stale.GetAckId()), stale.GetAckId())
}

func errorNamesFailedIDs(t *trial) {
	s := t.exactly("a", "b")
	both := s.next(2)
	stale, good := both[0], both[1]
	s.nack(stale)
	s.ack(s.want(stale.data())...)
	t.extend(s.subscription, ackSeconds, good)
	err := t.tryAck(s.subscription, stale.GetAckId(), good.GetAckId())
	t.rejected("acknowledgement of both", err, stale.GetAckId())
	equal(t, "what the error says of the good id", failures(err)[good.GetAckId()], "")
	s.quiet(ackTime)
}

func exactLeaseHolds(t *trial) {
	s := t.exactly("a")
	a := s.one()
	other := t.stream(s.subscription)
	asked := time.Now()
	t.extend(s.subscription, 4, a)
	ofOne, ofOther := both(s, other, 1)
	t.notBefore(append(ofOne, ofOther...)[0].at, asked, 4*time.Second)
}

func exactAckIsKept(t *trial) {
	s := t.exactly("a")
	s.ackInTime(s.one())
	s.quiet(ackTime)
}

func exactCopiesAreDistinct(t *trial) {
	both := t.exactly("a", "a").next(2)
	t.checkf(both[0].GetMessage().GetMessageId() != both[1].GetMessage().GetMessageId(), "both have one id")
}

// exactKey publishes messages of one key to a topic with a new ordered exactly-once subscription,
// and returns a stream of the subscription.
func (t *trial) exactKey(data ...string) *stream {
	topic := t.topic()
	s := t.stream(t.subscriptionWith(&pubsubpb.Subscription{Topic: topic, EnableExactlyOnceDelivery: true, EnableMessageOrdering: true}))
	t.publish(topic, texts("key", data...)...)
	return s
}

func exactKeyIsAcknowledgedInOrder(t *trial) {
	s := t.exactKey("a", "b")
	held := s.want("a", "b")
	later := held[1].GetAckId()
	err := t.tryAck(s.subscription, later)
	equal(t, "what the error's ErrorInfo says of a later message's id", failures(err)[later], unorderedAckID)
	t.code("acknowledgement of the first", t.tryAck(s.subscription, held[0].GetAckId()), codes.OK)
	t.code("acknowledgement of the later", t.tryAck(s.subscription, later), codes.OK)
}

func exactKeyKeepsOrder(t *trial) {
	s := t.exactKey("a", "b", "c")
	held := s.want("a", "b", "c")
	s.nack(held[0])
	s.ack(s.want("a", "b", "c")...)
	s.quiet(silence)
}

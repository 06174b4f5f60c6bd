package conformance

import (
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

func ordering() area {
	source := page("ordering")
	return area{"ordering", []Behaviour{
		{Name: "messages of a key arrive in the order of their publishing", Source: source, try: keysArriveInOrder},
		{Name: "several messages of a key are outstanding on one stream", Source: source, try: keyHasSeveralOutstanding},
		{Name: "after a nack the message and the later ones of its key come again, in order", Source: source, try: nackRedeliversLater},
		{
			Name:   "after an expired lease the message and the later ones of its key come again, in order",
			Source: source, try: expiryRedeliversLater,
		},
		{Name: "a key whose leases all run out comes again in order", Source: source, try: expiryKeepsOrder},
		{Name: "a redelivery redelivers acknowledged later messages of the key too", Source: source, try: redeliveryIncludesAcknowledged},
		{Name: "acknowledged earlier messages of a key do not come again", Source: source, try: redeliveryExcludesEarlier},
		{Name: "a key's redelivery does not concern other keys", Source: source, try: redeliveryIsOneKeys},
		{Name: "a key stays with one stream while messages of it are outstanding", Source: source, try: keyStaysWithStream},
		{Name: "keys go to the streams that have room for them", Source: source, try: keysAreShared},
		{Name: "a dead stream's messages of a key come again in order", Source: source, try: deadStreamKeepsOrder},
		{Name: "messages without a key are independent on an ordered subscription", Source: source, try: keylessIsIndependent},
		{Name: "a key has no effect on a subscription without ordering", Source: source, try: unorderedIsIndependent},
	}}
}

func keysArriveInOrder(t *trial) {
	const keys, rounds, batch = 5, 8, 5
	topic := t.topic()
	s := t.stream(t.ordered(topic))
	for round := range rounds {
		for key := range keys {
			messages := make([]*pubsubpb.PubsubMessage, batch)
			for i := range messages {
				messages[i] = &pubsubpb.PubsubMessage{Data: fmt.Append(nil, round*batch+i), OrderingKey: fmt.Sprint(key)}
			}
			t.publish(topic, messages...)
		}
	}
	next := make(map[string]int)
	for range keys * rounds * batch {
		d := s.one()
		key := d.GetMessage().GetOrderingKey()
		equal(t, "next of key "+key, d.data(), fmt.Sprint(next[key]))
		next[key]++
		s.ack(d)
	}
}

// key publishes messages of one key to a topic with a new ordered subscription, and returns a
// stream of the subscription.
func (t *trial) key(data ...string) *stream {
	topic := t.topic()
	s := t.stream(t.ordered(topic))
	t.publish(topic, texts("key", data...)...)
	return s
}

func keyHasSeveralOutstanding(t *trial) {
	t.key("a", "b", "c", "d", "e").want("a", "b", "c", "d", "e")
}

func nackRedeliversLater(t *trial) {
	s := t.key("a", "b", "c", "d")
	held := s.want("a", "b", "c", "d")
	s.nack(held[1])
	s.want("b", "c", "d")
	s.quiet(silence)
}

func expiryRedeliversLater(t *trial) {
	s := t.key("a", "b", "c", "d")
	held := s.want("a", "b", "c", "d")
	s.expire(held[1])
	s.want("b", "c", "d")
	s.quiet(silence)
}

func expiryKeepsOrder(t *trial) {
	s := t.key("a", "b", "c")
	s.expire(s.want("a", "b", "c")...)
	s.ack(s.want("a", "b", "c")...)
	s.quiet(silence)
}

func redeliveryIncludesAcknowledged(t *trial) {
	s := t.key("a", "b", "c")
	held := s.want("a", "b", "c")
	s.ack(held[1:]...)
	s.nack(held[0])
	s.ack(s.want("a", "b", "c")...)
	s.quiet(silence)
}

func redeliveryExcludesEarlier(t *trial) {
	s := t.key("a", "b")
	held := s.want("a", "b")
	s.ack(held[0])
	s.nack(held[1])
	s.ack(s.want("b")...)
	s.quiet(silence)
}

func redeliveryIsOneKeys(t *trial) {
	topic := t.topic()
	s := t.stream(t.ordered(topic))
	t.publish(topic, texts("one", "a")...)
	a := s.want("a")
	t.publish(topic, texts("two", "b")...)
	s.want("b")
	s.nack(a...)
	s.want("a")
	s.quiet(silence)
}

func keyStaysWithStream(t *trial) {
	topic := t.topic()
	subscription := t.ordered(topic)
	first, other := t.stream(subscription), t.stream(subscription)
	t.publish(topic, texts("key", "a")...)
	if _, of := both(first, other, 1); len(of) > 0 {
		first, other = other, first
	}
	t.publish(topic, texts("key", "b", "c")...)
	first.want("b", "c")
	other.quiet(silence)
}

func keysAreShared(t *trial) {
	const keys = 20
	topic := t.topic()
	subscription := t.ordered(topic)
	full, free := t.limited(subscription, 1), t.limited(subscription, keys)
	var want []string
	for i := range keys {
		want = append(want, fmt.Sprint(i))
		t.publish(topic, texts(fmt.Sprint(i), fmt.Sprint(i))...)
	}
	ofFull, ofFree := both(full, free, keys)
	t.sameSet("messages", append(data(ofFull), data(ofFree)...), want)
	t.checkf(len(ofFull) <= 1, "a stream with room for one holds %d", len(ofFull))
}

func deadStreamKeepsOrder(t *trial) {
	topic := t.topic()
	subscription := t.ordered(topic)
	t.publish(topic, texts("key", "a", "b", "c")...)
	dead := t.open(&pubsubpb.StreamingPullRequest{Subscription: subscription, StreamAckDeadlineSeconds: 10})
	dead.want("a", "b", "c")
	dead.abort()
	alive := t.stream(subscription)
	t.publish(topic, texts("key", "d")...)
	got := alive.want("a", "b", "c", "d")
	t.notBefore(got[0].at, dead.opened, 10*time.Second)
}

func keylessIsIndependent(t *trial) {
	topic := t.topic()
	s := t.stream(t.ordered(topic))
	t.publish(topic, texts("", "a", "b", "c")...)
	first := s.next(3)[0]
	s.nack(first)
	s.want(first.data())
	s.quiet(silence)
}

func unorderedIsIndependent(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, texts("key", "a", "b", "c")...)
	first := s.next(3)[0]
	equal(t, "ordering key", first.GetMessage().GetOrderingKey(), "key")
	s.nack(first)
	s.want(first.data())
	s.quiet(silence)
}

package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func publishing() area {
	source := rpc("PubsubMessage")
	return area{"publishing", []Behaviour{
		{Name: "each subscription gets each message", Source: page("overview"), try: eachSubscriptionGetsAll},
		{Name: "a subscription gets the messages published after its creation", Source: page("subscriber"), try: subscriptionStartsAtCreation},
		{
			Name:   "a new subscription does not begin with the messages that its topic retains",
			Source: page("replay-overview"), try: subscriptionStartsAfterRetained,
		},
		{Name: "data, attributes and ordering key arrive unchanged", Source: source, try: messageIsUnchanged},
		{Name: "a message may consist of attributes alone", Source: source, try: attributesSuffice},
		{Name: "message ids are unique within a topic, also when it is created again", Source: source, try: messageIDsAreUnique},
		{Name: "publish returns the ids in the order of the messages", Source: rpc("PublishResponse"), try: idsAreInOrder},
		{Name: "id and publish time are the server's, not the publisher's", Source: source, try: idAndTimeAreTheServers},
		{Name: "a redelivery has the id and publish time of the first", Source: source, try: redeliveryIsTheSameMessage},
	}}
}

func eachSubscriptionGetsAll(t *trial) {
	topic := t.topic()
	one, two := t.subscription(topic), t.subscription(topic)
	t.publish(topic, text("a"), text("b"))
	first := t.stream(one)
	first.ack(first.wantSet("a", "b")...)
	t.stream(two).wantSet("a", "b")
}

func subscriptionStartsAtCreation(t *trial) {
	topic := t.topic()
	t.subscription(topic) // without a subscription the message would not be kept
	t.publish(topic, text("before"))
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("after"))
	s.want("after")
	s.quiet(silence)
}

func subscriptionStartsAfterRetained(t *trial) {
	topic := t.topicWith(&pubsubpb.Topic{MessageRetentionDuration: durationpb.New(time.Hour)}).GetName()
	t.publish(topic, text("retained"))
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("after"))
	s.want("after")
	s.quiet(silence)
}

func messageIsUnchanged(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	bytes := make([]byte, 256)
	for i := range bytes {
		bytes[i] = byte(i)
	}
	want := &pubsubpb.PubsubMessage{
		Data: bytes, Attributes: map[string]string{"empty": "", "Größe": "一二三", "a.b/c": "x y"}, OrderingKey: "key",
	}
	t.publish(topic, want)
	got := t.stream(subscription).one().GetMessage()
	t.checkf(slices.Equal(got.GetData(), bytes), "data is %x", got.GetData())
	t.checkf(maps.Equal(got.GetAttributes(), want.GetAttributes()), "attributes are %q", got.GetAttributes())
	equal(t, "ordering key", got.GetOrderingKey(), "key")
}

func attributesSuffice(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.publish(topic, attributed("", "kind", "a"))
	got := t.stream(subscription).one().GetMessage()
	equal(t, "attribute", got.GetAttributes()["kind"], "a")
	equal(t, "length of data", len(got.GetData()), 0)
}

func messageIDsAreUnique(t *trial) {
	topic := t.topic()
	seen := make(map[string]bool)
	publish := func() {
		for range 5 {
			messages := make([]*pubsubpb.PubsubMessage, 100)
			for i := range messages {
				messages[i] = text(fmt.Sprint(i))
			}
			for _, id := range t.publish(topic, messages...) {
				t.checkf(id != "" && !seen[id], "id %q is given twice", id)
				seen[id] = true
			}
		}
	}
	publish()
	t.deleteTopic(topic)
	_, err := t.createTopic(&pubsubpb.Topic{Name: topic})
	t.must(err)
	publish()
	equal(t, "number of ids", len(seen), 1000)
}

func idsAreInOrder(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	ids := t.publish(topic, text("a"), text("b"), text("c"))
	equal(t, "number of ids", len(ids), 3)
	byID := make(map[string]string)
	for _, d := range t.stream(subscription).next(3) {
		byID[d.GetMessage().GetMessageId()] = d.data()
	}
	got := byID[ids[0]] + byID[ids[1]] + byID[ids[2]]
	equal(t, "what arrives under the ids", got, "abc")
}

func idAndTimeAreTheServers(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	before := time.Now()
	ids, err := t.tryPublish(topic, &pubsubpb.PubsubMessage{
		Data: []byte("a"), MessageId: "mine", PublishTime: timestamppb.New(before.Add(-1000 * time.Hour)),
	})
	if err != nil {
		t.refused("message with an id", err)
		return
	}
	got := t.stream(subscription).one().GetMessage()
	equal(t, "id", got.GetMessageId(), ids[0])
	t.checkf(!strings.Contains(ids[0], "mine"), "id is the publisher's %q", ids[0])
	// The tolerance is a minute, because the clocks may differ.
	age := got.GetPublishTime().AsTime().Sub(before)
	t.checkf(age.Abs() < time.Minute, "publish time is %v away from now", age)
}

func redeliveryIsTheSameMessage(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, text("a"))
	first := s.one()
	s.nack(first)
	second := s.one()
	equal(t, "id", second.GetMessage().GetMessageId(), first.GetMessage().GetMessageId())
	equal(t, "publish time", second.GetMessage().GetPublishTime().AsTime(), first.GetMessage().GetPublishTime().AsTime())
}

package conformance

import (
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

// deletedTopic replaces the name of a deleted topic in a subscription.
const deletedTopic = "_deleted-topic_"

func topics() area {
	return area{"topics", []Behaviour{
		{Name: "a topic is read back as it was created", Source: rpc("Topic"), try: topicIsReadBack},
		{Name: "a new topic is active", Source: rpc("Topic.State"), try: topicIsActive},
		{Name: "a second topic of the same name already exists", Source: page("reference/error-codes"), try: topicExists},
		{Name: "a malformed topic name is refused", Source: rpc("Topic"), try: topicNameIsChecked},
		{Name: "a missing topic is not found", Source: page("reference/error-codes"), try: topicIsMissing},
		{Name: "topic retention is between 10 minutes and 31 days", Source: rpc("Topic"), try: topicRetentionIsLimited},
		{Name: "a topic update changes the fields of its mask and no others", Source: rpc("UpdateTopicRequest"), try: topicUpdateObeysMask},
		{Name: "a topic's labels can be updated", Source: page("labels"), try: topicLabelsChange},
		{Name: "a topic update without a mask is refused", Source: rpc("UpdateTopicRequest"), try: topicUpdateNeedsMask},
		{Name: "a topic update with an unknown field in its mask is refused", Source: rpc("UpdateTopicRequest"), try: topicUpdateKnowsFields},
		{Name: "topics are listed in pages, each once", Source: rpc("ListTopicsRequest"), try: topicsAreListed},
		{
			Name:   "a topic's subscriptions are listed in pages, each once",
			Source: rpc("ListTopicSubscriptionsRequest"), try: topicSubscriptionsAreListed,
		},
		{
			Name:   "the subscription of a deleted topic names _deleted-topic_ and keeps its backlog",
			Source: rpc("Publisher.DeleteTopic"), try: topicIsDeleted,
		},
		{Name: "a topic created again under a deleted name has no subscriptions", Source: rpc("Publisher.DeleteTopic"), try: topicIsRecreated},
	}}
}

func topicIsReadBack(t *trial) {
	created := t.topicWith(&pubsubpb.Topic{
		Labels:                   map[string]string{"team": "a"},
		MessageRetentionDuration: durationpb.New(20 * time.Minute),
	})
	for _, got := range []*pubsubpb.Topic{created, t.getTopic(created.GetName())} {
		equal(t, "label", got.GetLabels()["team"], "a")
		equal(t, "retention", got.GetMessageRetentionDuration().AsDuration(), 20*time.Minute)
		equal(t, "storage policy", got.GetMessageStoragePolicy().GetEnforceInTransit(), false)
	}
}

func topicIsActive(t *trial) {
	equal(t, "state", t.getTopic(t.topic()).GetState(), pubsubpb.Topic_ACTIVE)
}

func topicExists(t *trial) {
	_, err := t.createTopic(&pubsubpb.Topic{Name: t.topic()})
	t.code("second creation", err, codes.AlreadyExists)
}

// malformed returns ids that no resource may have. Each id is too short or too long, does not begin
// with a letter, is reserved, or has a forbidden character.
func malformed() []string {
	return []string{"ab", strings.Repeat("a", 256), "1abc", "googabc", "a b c", "a/b"}
}

func topicNameIsChecked(t *trial) {
	for _, id := range malformed() {
		_, err := t.createTopic(&pubsubpb.Topic{Name: "projects/" + t.project + "/topics/" + id})
		t.code("topic "+id, err, codes.InvalidArgument)
	}
}

func topicIsMissing(t *trial) {
	missing := t.name("topics")
	_, err := t.publisher.GetTopic(t.ctx, &pubsubpb.GetTopicRequest{Topic: missing})
	t.code("get", err, codes.NotFound)
	_, err = t.tryPublish(missing, text("a"))
	t.code("publish", err, codes.NotFound)
	_, err = t.publisher.DeleteTopic(t.ctx, &pubsubpb.DeleteTopicRequest{Topic: missing})
	t.code("delete", err, codes.NotFound)
	_, err = t.updateTopic(&pubsubpb.Topic{Name: missing, MessageRetentionDuration: durationpb.New(time.Hour)}, "message_retention_duration")
	t.code("update", err, codes.NotFound)
	_, err = t.publisher.ListTopicSubscriptions(t.ctx, &pubsubpb.ListTopicSubscriptionsRequest{Topic: missing})
	t.code("list subscriptions", err, codes.NotFound)
}

func topicRetentionIsLimited(t *trial) {
	for _, d := range []time.Duration{10*time.Minute - time.Second, 31*24*time.Hour + time.Second} {
		_, err := t.createTopic(&pubsubpb.Topic{Name: t.name("topics"), MessageRetentionDuration: durationpb.New(d)})
		t.code("retention "+d.String(), err, codes.InvalidArgument)
	}
	for _, d := range []time.Duration{10 * time.Minute, 31 * 24 * time.Hour} {
		_, err := t.createTopic(&pubsubpb.Topic{Name: t.name("topics"), MessageRetentionDuration: durationpb.New(d)})
		t.code("retention "+d.String(), err, codes.OK)
	}
}

func topicUpdateObeysMask(t *trial) {
	topic := t.topicWith(&pubsubpb.Topic{Labels: map[string]string{"team": "a"}, MessageRetentionDuration: durationpb.New(time.Hour)})
	updated, err := t.updateTopic(&pubsubpb.Topic{
		Name: topic.GetName(), Labels: map[string]string{"team": "b"}, MessageRetentionDuration: durationpb.New(2 * time.Hour),
	}, "message_retention_duration")
	t.must(err)
	for _, got := range []*pubsubpb.Topic{updated, t.getTopic(topic.GetName())} {
		equal(t, "label outside of the mask", got.GetLabels()["team"], "a")
		equal(t, "retention", got.GetMessageRetentionDuration().AsDuration(), 2*time.Hour)
	}
}

func topicLabelsChange(t *trial) {
	topic := t.topicWith(&pubsubpb.Topic{Labels: map[string]string{"team": "a", "stage": "test"}})
	_, err := t.updateTopic(&pubsubpb.Topic{Name: topic.GetName(), Labels: map[string]string{"team": "b"}}, "labels")
	t.must(err)
	got := t.getTopic(topic.GetName()).GetLabels()
	equal(t, "number of labels", len(got), 1)
	equal(t, "label", got["team"], "b")
}

func topicUpdateNeedsMask(t *trial) {
	_, err := t.updateTopic(&pubsubpb.Topic{Name: t.topic(), MessageRetentionDuration: durationpb.New(time.Hour)})
	t.code("update", err, codes.InvalidArgument)
}

func topicUpdateKnowsFields(t *trial) {
	_, err := t.updateTopic(&pubsubpb.Topic{Name: t.topic()}, "colour")
	t.code("update", err, codes.InvalidArgument)
}

func topicsAreListed(t *trial) {
	const size = 2
	want := []string{t.topic(), t.topic(), t.topic(), t.topic(), t.topic()}
	t.listed(size, want, func(token string) (names []string, next string, err error) {
		response, err := t.publisher.ListTopics(t.ctx,
			&pubsubpb.ListTopicsRequest{Project: "projects/" + t.project, PageSize: size, PageToken: token})
		for _, topic := range response.GetTopics() {
			names = append(names, topic.GetName())
		}
		return names, response.GetNextPageToken(), err
	})
}

func topicSubscriptionsAreListed(t *trial) {
	const size = 2
	topic := t.topic()
	t.subscription(t.topic()) // of another topic
	want := []string{t.subscription(topic), t.subscription(topic), t.subscription(topic)}
	var got []string
	t.listed(size, want, func(token string) ([]string, string, error) {
		response, err := t.publisher.ListTopicSubscriptions(t.ctx,
			&pubsubpb.ListTopicSubscriptionsRequest{Topic: topic, PageSize: size, PageToken: token})
		got = append(got, response.GetSubscriptions()...)
		return response.GetSubscriptions(), response.GetNextPageToken(), err
	})
	t.sameSet("subscriptions", got, want)
}

func topicIsDeleted(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.publish(topic, text("a"))
	t.deleteTopic(topic)
	equal(t, "topic of the subscription", t.getSubscription(subscription).GetTopic(), deletedTopic)
	t.stream(subscription).want("a")
}

func topicIsRecreated(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.deleteTopic(topic)
	_, err := t.createTopic(&pubsubpb.Topic{Name: topic})
	t.must(err)
	response, err := t.publisher.ListTopicSubscriptions(t.ctx, &pubsubpb.ListTopicSubscriptionsRequest{Topic: topic})
	t.must(err)
	equal(t, "number of its subscriptions", len(response.GetSubscriptions()), 0)
	equal(t, "topic of the old subscription", t.getSubscription(subscription).GetTopic(), deletedTopic)
	t.publish(topic, text("a"))
	t.stream(subscription).quiet(silence)
}

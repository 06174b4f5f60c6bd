package conformance

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

func snapshots() area {
	source := page("replay-overview")
	return area{"snapshots", []Behaviour{
		{
			Name:   "a seek to a snapshot restores the messages that were unacknowledged then and brings back later ones",
			Source: rpc("CreateSnapshotRequest"), try: snapshotRestores,
		},
		{Name: "a snapshot restores keys in order", Source: page("ordering"), try: snapshotKeepsOrder},
		{Name: "another subscription of the topic can seek to a snapshot", Source: source, try: snapshotIsShared},
		{Name: "a new subscription can seek to a snapshot that outlived its own", Source: source, try: snapshotOutlives},
		{Name: "a seek to another topic's snapshot is refused", Source: rpc("Subscriber.Seek"), try: snapshotIsOneTopics},
		{Name: "a snapshot names its topic and expires within 7 days", Source: rpc("Snapshot"), try: snapshotIsReadBack},
		{Name: "a second snapshot of the same name already exists", Source: rpc("Subscriber.CreateSnapshot"), try: snapshotExists},
		{Name: "a snapshot of a missing subscription is not found", Source: rpc("Subscriber.CreateSnapshot"), try: snapshotNeedsSubscription},
		{Name: "a snapshot's labels are kept and can be updated", Source: rpc("UpdateSnapshotRequest"), try: snapshotLabelsChange},
		{Name: "snapshots are listed in pages, each once", Source: rpc("ListSnapshotsRequest"), try: snapshotsAreListed},
		{Name: "a topic's snapshots are listed", Source: rpc("ListTopicSnapshotsRequest"), try: topicSnapshotsAreListed},
		{Name: "a deleted snapshot is not found", Source: rpc("Subscriber.DeleteSnapshot"), try: snapshotIsDeleted},
	}}
}

func (t *trial) seekSnapshot(subscription, snapshot string) error {
	_, err := t.subscriber.Seek(t.ctx, &pubsubpb.SeekRequest{
		Subscription: subscription, Target: &pubsubpb.SeekRequest_Snapshot{Snapshot: snapshot},
	})
	return err
}

func (t *trial) getSnapshot(name string) (*pubsubpb.Snapshot, error) {
	return t.subscriber.GetSnapshot(t.ctx, &pubsubpb.GetSnapshotRequest{Snapshot: name})
}

func snapshotRestores(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	t.publish(topic, texts("", "a", "b", "c")...)
	first := s.next(3)
	s.ack(first[0])
	snapshot := t.snapshot(s.subscription)
	t.publish(topic, text("later"))
	s.ack(append(first[1:], s.one())...)
	t.must(t.seekSnapshot(s.subscription, snapshot))
	s.ack(s.wantSet(first[1].data(), first[2].data(), "later")...)
	s.quiet(silence)
}

func snapshotKeepsOrder(t *trial) {
	s := t.key("a", "b", "c", "d")
	held := s.want("a", "b", "c", "d")
	s.ack(held[0])
	snapshot := t.snapshot(s.subscription)
	s.ack(held[1:]...)
	t.must(t.seekSnapshot(s.subscription, snapshot))
	s.ack(s.want("b", "c", "d")...)
	s.quiet(silence)
}

func snapshotIsShared(t *trial) {
	topic := t.topic()
	one, two := t.stream(t.subscription(topic)), t.stream(t.subscription(topic))
	t.publish(topic, texts("", "a", "b")...)
	first := one.next(2)
	one.ack(first[0])
	snapshot := t.snapshot(one.subscription)
	two.ack(two.next(2)...)
	t.must(t.seekSnapshot(two.subscription, snapshot))
	two.want(first[1].data())
	two.quiet(silence)
}

func snapshotOutlives(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.publish(topic, texts("", "a", "b")...)
	snapshot := t.snapshot(subscription)
	t.deleteSubscription(subscription)
	s := t.stream(t.subscription(topic))
	t.must(t.seekSnapshot(s.subscription, snapshot))
	s.wantSet("a", "b")
}

func snapshotIsOneTopics(t *trial) {
	snapshot := t.snapshot(t.subscription(t.topic()))
	t.refused("seek", t.seekSnapshot(t.subscription(t.topic()), snapshot))
}

func snapshotIsReadBack(t *trial) {
	topic := t.topic()
	created, err := t.createSnapshot(&pubsubpb.CreateSnapshotRequest{
		Name: t.name("snapshots"), Subscription: t.subscription(topic),
	})
	t.must(err)
	read, err := t.getSnapshot(created.GetName())
	t.must(err)
	for _, got := range []*pubsubpb.Snapshot{created, read} {
		equal(t, "topic", got.GetTopic(), topic)
		left := time.Until(got.GetExpireTime().AsTime())
		// A snapshot lives for at least an hour. The backlog is empty, so nearly 7 days remain.
		t.checkf(left > time.Hour && left < 7*day+time.Minute, "it expires in %v", left)
	}
}

func snapshotExists(t *trial) {
	subscription := t.subscription(t.topic())
	_, err := t.createSnapshot(&pubsubpb.CreateSnapshotRequest{Name: t.snapshot(subscription), Subscription: subscription})
	t.code("second creation", err, codes.AlreadyExists)
}

func snapshotNeedsSubscription(t *trial) {
	_, err := t.createSnapshot(&pubsubpb.CreateSnapshotRequest{Name: t.name("snapshots"), Subscription: t.name("subscriptions")})
	t.code("creation", err, codes.NotFound)
}

func snapshotLabelsChange(t *trial) {
	created, err := t.createSnapshot(&pubsubpb.CreateSnapshotRequest{
		Name: t.name("snapshots"), Subscription: t.subscription(t.topic()), Labels: map[string]string{"team": "a"},
	})
	t.must(err)
	name := created.GetName()
	equal(t, "label", created.GetLabels()["team"], "a")
	_, err = t.subscriber.UpdateSnapshot(t.ctx, &pubsubpb.UpdateSnapshotRequest{
		Snapshot:   &pubsubpb.Snapshot{Name: name, Labels: map[string]string{"team": "b"}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
	})
	t.must(err)
	got, err := t.getSnapshot(name)
	t.must(err)
	equal(t, "label", got.GetLabels()["team"], "b")
}

func snapshotsAreListed(t *trial) {
	const size = 2
	subscription := t.subscription(t.topic())
	want := []string{t.snapshot(subscription), t.snapshot(subscription), t.snapshot(subscription)}
	t.listed(size, want, func(token string) (names []string, next string, err error) {
		response, err := t.subscriber.ListSnapshots(t.ctx,
			&pubsubpb.ListSnapshotsRequest{Project: "projects/" + t.project, PageSize: size, PageToken: token})
		for _, s := range response.GetSnapshots() {
			names = append(names, s.GetName())
		}
		return names, response.GetNextPageToken(), err
	})
}

func topicSnapshotsAreListed(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.snapshot(t.subscription(t.topic())) // of another subscription
	want := []string{t.snapshot(subscription), t.snapshot(subscription)}
	response, err := t.publisher.ListTopicSnapshots(t.ctx, &pubsubpb.ListTopicSnapshotsRequest{Topic: topic})
	t.must(err)
	t.sameSet("snapshots", response.GetSnapshots(), want)
}

func snapshotIsDeleted(t *trial) {
	name := t.snapshot(t.subscription(t.topic()))
	_, err := t.subscriber.DeleteSnapshot(t.ctx, &pubsubpb.DeleteSnapshotRequest{Snapshot: name})
	t.must(err)
	_, err = t.getSnapshot(name)
	t.code("get", err, codes.NotFound)
	_, err = t.subscriber.DeleteSnapshot(t.ctx, &pubsubpb.DeleteSnapshotRequest{Snapshot: name})
	t.code("second deletion", err, codes.NotFound)
}

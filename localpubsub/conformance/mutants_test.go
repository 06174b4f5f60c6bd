package conformance

import (
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// hides answers OK in place of an error.
func hides(code codes.Code) func(any, any, func() error) error {
	return func(_, _ any, call func() error) error {
		if err := call(); status.Code(err) != code {
			return err
		}
		return nil
	}
}

// changes edits requests of one type before they are sent.
func changes[R any](edit func(R)) func(any, any, func() error) error {
	return func(request, _ any, call func() error) error {
		if r, ok := request.(R); ok {
			edit(r)
		}
		return call()
	}
}

// answers edits replies of one type.
func answers[R any](edit func(R)) func(any, any, func() error) error {
	return func(_, reply any, call func() error) error {
		err := call()
		if r, ok := reply.(R); ok && err == nil {
			edit(r)
		}
		return err
	}
}

// swallows answers OK to requests of one type and drops them.
func swallows[R any]() func(any, any, func() error) error {
	return func(request, _ any, call func() error) error {
		if _, ok := request.(R); ok {
			return nil
		}
		return call()
	}
}

// eachMessage edits deliveries on streams.
func eachMessage(edit func(*pubsubpb.ReceivedMessage)) func(*pubsubpb.StreamingPullResponse) {
	return func(r *pubsubpb.StreamingPullResponse) {
		for _, m := range r.GetReceivedMessages() {
			edit(m)
		}
	}
}

// mutants cover the behaviours that neither the emulator nor pstest fails.
func mutants() map[string]mutant {
	serial := 0
	return map[string]mutant{
		"a create that forgets labels": {call: changes(func(r *pubsubpb.Topic) { r.Labels = nil }), fails: []string{
			"a topic is read back as it was created", "a topic update changes the fields of its mask and no others"}},
		"a create that forgets settings": {call: changes(func(r *pubsubpb.Subscription) { r.RetainAckedMessages, r.DeadLetterPolicy = false, nil }), fails: []string{
			"a subscription is read back as it was created", "under a dead letter policy deliveries are counted from 1",
			"an expired lease counts as an attempt", "a dead letter policy with a missing topic is refused",
			"after its last attempt a message goes to the dead letter topic and comes no more"}},
		"duplicates are welcome": {call: hides(codes.AlreadyExists), fails: []string{
			"a second topic of the same name already exists", "a second subscription of the same name already exists",
			"a second snapshot of the same name already exists"}},
		"nonsense is welcome": {call: hides(codes.InvalidArgument), fails: []string{
			"topic retention is between 10 minutes and 31 days", "a topic update with an unknown field in its mask is refused",
			"message ordering is immutable", "a subscription's topic is immutable",
			"a subscription update with an unknown field in its mask is refused", "a seek without a target is refused"}},
		"what is missing is found": {call: hides(codes.NotFound), fails: []string{
			"a subscription to a missing topic is not found", "a missing subscription is not found",
			"a snapshot of a missing subscription is not found", "a deleted snapshot is not found", "a deleted revision is not found"}},
		"a mask adds a field": {call: changes(func(r *pubsubpb.UpdateSubscriptionRequest) {
			r.UpdateMask.Paths = append(r.UpdateMask.Paths, "message_retention_duration")
		}), fails: []string{"a subscription update changes the fields of its mask and no others"}},
		"updates are lost": {call: swallows[*pubsubpb.UpdateSubscriptionRequest](), fails: []string{
			"a subscription's policies can be set and cleared"}},
		"pages that end early": {call: answers(func(r interface{ GetNextPageToken() string }) {
			switch r := r.(type) {
			case *pubsubpb.ListTopicsResponse:
				r.NextPageToken = ""
			case *pubsubpb.ListTopicSubscriptionsResponse:
				r.NextPageToken = ""
			case *pubsubpb.ListSubscriptionsResponse:
				r.NextPageToken = ""
			case *pubsubpb.ListSnapshotsResponse:
				r.NextPageToken = ""
			}
		}), fails: []string{
			"topics are listed in pages, each once", "a topic's subscriptions are listed in pages, each once",
			"subscriptions are listed in pages, each once", "snapshots are listed in pages, each once"}},
		"deletions are lost": {call: func(request, _ any, call func() error) error {
			switch request.(type) {
			case *pubsubpb.DeleteTopicRequest, *pubsubpb.DeleteSubscriptionRequest:
				return nil
			}
			return call()
		}, fails: []string{
			"the subscription of a deleted topic names _deleted-topic_ and keeps its backlog", "a deleted subscription is gone with its backlog"}},
		"half of each publish is lost": {call: func(request, reply any, call func() error) error {
			r, ok := request.(*pubsubpb.PublishRequest)
			if !ok {
				return call()
			}
			all := len(r.GetMessages())
			r.Messages = r.GetMessages()[:all/2]
			if all > 1 {
				if err := call(); err != nil {
					return err
				}
			}
			into := reply.(*pubsubpb.PublishResponse)
			for len(into.GetMessageIds()) < all {
				into.MessageIds = append(into.MessageIds, "lost")
			}
			return nil
		}, fails: []string{
			"each subscription gets each message", "a subscription gets the messages published after its creation",
			"an idle stream gets messages that are published later", "the client receives the messages that it publishes",
			"exactly-once: a message published twice is two messages", "pulls one after the other get each message once",
			"streams of one subscription share its messages"}},
		"attributes are lost": {call: changes(func(r *pubsubpb.PublishRequest) {
			for _, m := range r.GetMessages() {
				m.Attributes = map[string]string{"other": "other"}
			}
		}), fails: []string{"data, attributes and ordering key arrive unchanged", "a message may consist of attributes alone"}},
		"ids are answered backwards, and again": {call: answers(func(r *pubsubpb.PublishResponse) {
			slices.Reverse(r.MessageIds)
			r.MessageIds = append(r.MessageIds[:len(r.MessageIds)-1], r.MessageIds[0])
		}), fails: []string{
			"message ids are unique within a topic, also when it is created again", "publish returns the ids in the order of the messages"}},
		"a stream greets, and is silent": {receive: func(r *pubsubpb.StreamingPullResponse) {
			if len(r.GetReceivedMessages()) > 0 {
				r.SubscriptionProperties = nil
			}
		}, fails: []string{"each response of a stream reports whether its subscription is ordered and exactly-once"}},
		"ids change on the way": {receive: eachMessage(func(m *pubsubpb.ReceivedMessage) {
			serial++
			m.Message.MessageId += fmt.Sprint(serial)
		}), fails: []string{
			"id and publish time are the server's, not the publisher's", "a redelivery has the id and publish time of the first"}},
		"acknowledgements are lost": {call: swallows[*pubsubpb.AcknowledgeRequest](), fails: []string{
			"an acknowledged message does not come again", "exactly-once: an acknowledged message does not come again",
			"an ordered key is pulled in order", "an acknowledged message is no dead letter",
			"messages acknowledged before the client stopped do not come again"}},
		"acknowledgements fail": {call: func(request, _ any, call func() error) error {
			r, ok := request.(*pubsubpb.AcknowledgeRequest)
			if !ok {
				return call()
			}
			info := &errdetails.ErrorInfo{Reason: "EXACTLY_ONCE_ACKID_FAILURE", Metadata: make(map[string]string)}
			for _, id := range r.GetAckIds() {
				info.Metadata[id] = invalidAckID
			}
			refused, err := status.New(codes.InvalidArgument, "no").WithDetails(info)
			if err != nil {
				return err
			}
			return refused.Err()
		}, fails: []string{
			"an acknowledgement twice or too late is no error", "an acknowledgement's result is success under exactly-once delivery"}},
		"acknowledgements reach others": {call: func(request, _ any, call func() error) error {
			if r, ok := request.(*pubsubpb.ModifyAckDeadlineRequest); ok && r.GetAckDeadlineSeconds() == 0 {
				return nil // another subscription took it for acknowledged
			}
			return call()
		}, fails: []string{
			"an acknowledgement concerns its own subscription", "a deadline of zero makes the message come again at once",
			"a key's redelivery does not concern other keys", "messages without a key are independent on an ordered subscription"}},
		"a stream is not listened to": {send: func(r *pubsubpb.StreamingPullRequest) {
			r.AckIds, r.ModifyDeadlineAckIds, r.ModifyDeadlineSeconds = nil, nil, nil
		}, fails: []string{
			"an acknowledgement on the stream counts", "a zero deadline on the stream makes the message come again",
			"a new deadline on the stream counts"}},
		"a stream without a name gets one": {send: func(r *pubsubpb.StreamingPullRequest) {
			if r.GetSubscription() == "" {
				r.Subscription = "projects/p/subscriptions/missing"
			}
		}, fails: []string{"a stream without a subscription is refused"}},
		"deadlines end at once": {call: changes(func(r *pubsubpb.ModifyAckDeadlineRequest) { r.AckDeadlineSeconds = 0 }), fails: []string{
			"an extended deadline counts from the extension", "a deadline can be shortened",
			"exactly-once: a message does not come again before its deadline"}},
		"a lease belongs to every stream": {receive: func(r *pubsubpb.StreamingPullResponse) {
			r.ReceivedMessages = append(r.ReceivedMessages, r.ReceivedMessages...)
		}, fails: []string{
			"a lease that runs out concerns no other message", "an idle stream gets messages that are published later"}},
		"pulls are generous": {call: changes(func(r *pubsubpb.PullRequest) { r.MaxMessages *= 10 }), fails: []string{
			"a pull returns no more than it asked for"}},
		"pulls do not wait": {call: func(request, _ any, call func() error) error {
			if _, ok := request.(*pubsubpb.PullRequest); ok {
				return nil
			}
			return call()
		}, fails: []string{"a pull waits for a message"}},
		"order is reversed": {receive: func(r *pubsubpb.StreamingPullResponse) { slices.Reverse(r.ReceivedMessages) }, fails: []string{
			"messages of a key arrive in the order of their publishing", "the client receives the messages of a key in order"}},
		"everything is ordered": {call: changes(func(r *pubsubpb.Subscription) { r.EnableMessageOrdering = true }), fails: []string{
			"a key has no effect on a subscription without ordering"}},
		"everything has one key": {call: changes(func(r *pubsubpb.PublishRequest) {
			for _, m := range r.GetMessages() {
				m.OrderingKey = "key"
			}
		}), fails: []string{"messages without a key are independent on an ordered subscription"}},
		"a backoff is beyond its maximum": {call: changes(func(r *pubsubpb.Subscription) {
			if p := r.GetRetryPolicy(); p != nil {
				p.MinimumBackoff, p.MaximumBackoff = durationpb.New(time.Minute), durationpb.New(time.Minute)
			}
		}), fails: []string{"the backoff does not grow beyond its maximum"}},
		"attempts are counted from 2": {receive: eachMessage(func(m *pubsubpb.ReceivedMessage) { m.DeliveryAttempt++ }), fails: []string{
			"under a dead letter policy deliveries are counted from 1", "without a dead letter policy no attempt is reported"}},
		"seeks are lost": {call: swallows[*pubsubpb.SeekRequest](), fails: []string{
			"a seek to the future discards the messages published before",
			"a seek to the past brings back acknowledged messages that are retained", "a seek brings back the messages published from its time on",
			"a seek to the past without retention brings back unacknowledged messages only",
			"a seek on an ordered subscription replays keys in order",
			"messages that a topic retains can be replayed without the subscription's retention",
			"a new subscription can seek to messages that its topic retained before",
			"a seek on or to a missing resource is not found", "a seek to another topic's snapshot is refused",
			"a seek to a snapshot restores the messages that were unacknowledged then and brings back later ones",
			"a snapshot restores keys in order", "another subscription of the topic can seek to a snapshot",
			"a new subscription can seek to a snapshot that outlived its own"}},
		"a snapshot names little": {call: answers(func(r *pubsubpb.Snapshot) { r.Topic, r.Labels = "", nil }), fails: []string{
			"a snapshot names its topic and expires within 7 days", "a snapshot's labels are kept and can be updated"}},
		"a topic's snapshots are few": {call: answers(func(r *pubsubpb.ListTopicSnapshotsResponse) { r.Snapshots = r.GetSnapshots()[:1] }), fails: []string{
			"a topic's snapshots are listed"}},
		"definitions are lost": {call: answers(func(r *pubsubpb.Schema) { r.Definition = "" }), fails: []string{
			"a protobuf schema is read back as it was created", "a rollback makes a new revision of an old definition",
			"a committed revision becomes the schema, the former can be read by its id"}},
		"policies are lost": {call: swallows[*iampb.SetIamPolicyRequest](), fails: []string{
			"a topic's policy is kept and returned", "a subscription's policy is kept and returned",
			"a policy changes its etag when it changes", "a policy with a stale etag is refused as aborted"}},
		"etags are lost": {call: answers(func(r *iampb.Policy) { r.Etag = nil }), fails: []string{
			"a new topic has an empty policy with an etag"}},
		"no permission is granted": {call: answers(func(r *iampb.TestIamPermissionsResponse) { r.Permissions = nil }), fails: []string{
			"the owner has the permissions that are asked for"}},
	}
}

// hasty lists the behaviours that must detect a server with a clock that runs
// faster than ours.
func hasty() []string {
	return []string{
		"an unacknowledged message comes again after its deadline, not before", "a stream's deadline holds for the messages on it",
		"a handler slower than the deadline gets its message once", "a dead stream's messages come again after their deadline, not before",
	}
}

package localpubsub_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/localpubsub"
)

// TestOutstandingBytesAreThoseOfTheMessages: a stream's limit of bytes counts messages as the
// consumer gets them, and nothing that the server keeps in addition.
func TestOutstandingBytesAreThoseOfTheMessages(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.publish("", numbered("m", 10)...)
	all := w.pull()
	size := 0
	for _, m := range all {
		size += proto.Size(m.GetMessage())
	}
	w.modify(0, all...)
	s := w.streamOf(&pubsubpb.StreamingPullRequest{MaxOutstandingBytes: int64(size)})
	// The stream has answered a keep-alive, so it has sent what its limit permits.
	if got := s.receive(0); len(got) != len(all) {
		t.Errorf("received %q, want all of %q", texts(got), texts(all))
	}
	w.publish("", "more")
	s.quiet()
}

// TestResponseIsBounded: a response stays below the 4 MiB that a gRPC client takes by default.
func TestResponseIsBounded(t *testing.T) {
	t.Parallel()
	w := plain(t)
	large := strings.Repeat("m", 600_000)
	for range 9 {
		w.publish("", large)
	}
	for _, want := range []int{2, 2, 2, 2, 1} {
		if got := w.pull(); len(got) != want {
			t.Errorf("a response has %d messages of 600 kB, want %d", len(got), want)
		}
	}
}

// TestStreamChangesItsDeadline: a later request of a stream sets the duration of its next leases, within the bounds.
func TestStreamChangesItsDeadline(t *testing.T) {
	t.Parallel()
	w := plain(t)
	s := w.stream(0)
	if err := s.Send(&pubsubpb.StreamingPullRequest{StreamAckDeadlineSeconds: 30}); err != nil {
		t.Fatal(err)
	}
	s.quiet()
	w.publish("", "m")
	s.receive(1)
	w.clock.Advance(29 * time.Second)
	s.quiet()
	w.clock.Advance(time.Second)
	s.receive(1)
	if err := s.Send(&pubsubpb.StreamingPullRequest{StreamAckDeadlineSeconds: 9}); err != nil {
		t.Fatal(err)
	}
	_, err := s.Recv()
	wantCode(t, err, codes.InvalidArgument)
}

// TestConfirmationsNameTheReason: an exactly-once stream learns of each id whether it counted.
func TestConfirmationsNameTheReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{EnableExactlyOnceDelivery: true, EnableMessageOrdering: true})
	s := w.stream(0)
	w.publish("A", "a0", "a1")
	ids := ackIDs(s.receive(2))
	if err := s.Send(&pubsubpb.StreamingPullRequest{AckIds: ids[1:]}); err != nil {
		t.Fatal(err)
	}
	response, err := s.Recv()
	if err != nil || !slices.Equal(response.GetAcknowledgeConfirmation().GetUnorderedAckIds(), ids[1:]) {
		t.Errorf("out of order: %v, %v", response, err)
	}
	w.clock.Advance(11 * time.Second)
	s.receive(2)
	if err := s.Send(&pubsubpb.StreamingPullRequest{ModifyDeadlineAckIds: ids, ModifyDeadlineSeconds: []int32{60, 60}}); err != nil {
		t.Fatal(err)
	}
	response, err = s.Recv()
	confirmed := response.GetModifyAckDeadlineConfirmation()
	if err != nil || len(confirmed.GetAckIds()) > 0 || len(confirmed.GetInvalidAckIds()) != 2 {
		t.Errorf("after the deadline: %v, %v", response, err)
	}
}

// TestAStreamThatDoesNotReadHoldsUpNoOther: a stream cannot send while its client does not read, as on a lost
// connection. When the leases of its messages end, the messages go to the other streams, and so do new ones.
func TestAStreamThatDoesNotReadHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := plain(t)
	unread(t, w)
	large := strings.Repeat("m", 300_000)
	ids := w.publish("", slices.Repeat([]string{large}, 8)...)
	reading := w.stream(0)
	go func() { // messages that the blocked stream has taken come again
		for range time.Tick(100 * time.Millisecond) {
			if t.Context().Err() != nil {
				return
			}
			w.clock.Advance(11 * time.Second)
		}
	}()
	seen := map[string]bool{}
	for range 5 { // the reading stream may still be awake at the first one
		for _, id := range append(ids, w.publish("", large)...) {
			for !seen[id] {
				for _, m := range reading.receive(1) {
					seen[m.GetMessage().GetMessageId()] = true
					w.ack(m)
				}
			}
		}
	}
}

// TestAnAnswerThatCannotBeSentHoldsUpNoOther: a stream has no messages to send, and waits with the answer to a request of its
// client, which does not read.
func TestAnAnswerThatCannotBeSentHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, confirmed := range map[string]bool{"a keep-alive": false, "a confirmation": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, localpubsub.Options{})
			w.subscribe(&pubsubpb.Subscription{EnableExactlyOnceDelivery: true})
			blocked, request := unread(t, w), &pubsubpb.StreamingPullRequest{}
			w.publish("", "the first one")
			first, err := blocked.Recv()
			if err != nil {
				t.Fatal(err)
			}
			w.publish("", strings.Repeat("m", 300_000)) // gRPC takes it, and blocks the next response
			<-time.After(200 * time.Millisecond)
			if confirmed {
				request.AckIds = ackIDs(first.GetReceivedMessages())
			} else {
				w.ack(first.GetReceivedMessages()...)
			}
			if err := blocked.Send(request); err != nil {
				t.Fatal(err)
			}
			<-time.After(200 * time.Millisecond)
			reading := w.stream(0)
			w.clock.Advance(11 * time.Second)
			w.ack(reading.receive(1)...)
			w.publish("", "another one")
			w.ack(reading.receive(1)...)
		})
	}
}

// unread opens a stream whose client is to read no more. Its window does not grow. It outlives the patience of other streams.
func unread(t *testing.T, w *world) pubsubpb.Subscriber_StreamingPullClient {
	t.Helper()
	opened, err := connect(t, w.Addr(), grpc.WithInitialWindowSize(64<<10)).StreamingPull(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []*pubsubpb.StreamingPullRequest{{Subscription: subscriptionName, StreamAckDeadlineSeconds: 10}, {}} {
		if err := opened.Send(first); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := opened.Recv(); err != nil { // the answer to the keep-alive
		t.Fatal(err)
	}
	return opened
}

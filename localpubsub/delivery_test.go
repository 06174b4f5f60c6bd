package localpubsub_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/localpubsub"
)

func TestLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{})
	w.publish("", "m")
	first := w.pull()
	wantTexts(t, first, "m")
	w.clock.Advance(9 * time.Second)
	wantTexts(t, w.pull())
	w.modify(20, first...)
	w.clock.Advance(19 * time.Second)
	wantTexts(t, w.pull())
	w.clock.Advance(time.Second)
	second := w.pull()
	wantTexts(t, second, "m")
	w.ack(first...) // too late: without effect
	w.modify(0, second...)
	third := w.pull()
	wantTexts(t, third, "m")
	w.ack(third...)
	w.clock.Advance(time.Minute)
	wantTexts(t, w.pull())
}

func TestLateAcknowledgementCountsUntilRedelivery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{})
	w.publish("", "m")
	got := w.pull()
	w.clock.Advance(11 * time.Second)
	w.ack(got...)
	wantTexts(t, w.pull())
}

func TestAckIDsAreChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{})
	w.subscribe(&pubsubpb.Subscription{Name: "projects/p/subscriptions/other"})
	w.publish("", "m")
	got := w.pull()
	for name, request := range map[string]*pubsubpb.AcknowledgeRequest{
		"none":                {Subscription: subscriptionName},
		"nonsense":            {Subscription: subscriptionName, AckIds: []string{"nonsense"}},
		"of another":          {Subscription: "projects/p/subscriptions/other", AckIds: ackIDs(got)},
		"one of two nonsense": {Subscription: subscriptionName, AckIds: append(ackIDs(got), "1-2-")},
	} {
		if _, err := w.Acknowledge(w.context(), request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
		}
	}
	w.modify(0, got...)
	wantTexts(t, w.pull(), "m") // no refused request settled it
}

func TestFlowControl(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{})
	s := w.stream(3)
	w.publish("", numbered("m", 10)...)
	got := s.receive(3)
	s.quiet()
	w.ack(got[0])
	w.modify(0, got[1])
	s.receive(2)
	s.quiet()
	w.clock.Advance(11 * time.Second) // all three can be delivered again
	s.receive(3)
	s.quiet()
}

func TestBacklogIsSharedAmongStreams(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{})
	streams := []*stream{w.stream(0), w.stream(0)}
	for i := range 10 {
		w.publish("", numbered(string(rune('a'+i)), 100)...)
	}
	counts := make(chan int)
	for _, s := range streams {
		go func() {
			n := 0
			for {
				response, err := s.Recv()
				if err != nil || len(response.GetReceivedMessages()) == 0 {
					counts <- n
					return
				}
				n += len(response.GetReceivedMessages())
			}
		}()
	}
	for _, s := range streams {
		if err := s.Send(&pubsubpb.StreamingPullRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	a, b := <-counts, <-counts
	if a == 0 || b == 0 || a+b != 1000 {
		t.Errorf("%d and %d of 1000", a, b)
	}
}

func TestReturnOnClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{ReturnOnClose: true})
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true})
	first := w.stream(0)
	w.publish("A", "a0", "a1")
	w.publish("", "m")
	first.receive(3)
	second := w.stream(0)
	second.quiet()
	first.cancel()
	second.receive(3) // the clock stands still
}

func TestExactlyOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{EnableExactlyOnceDelivery: true, EnableMessageOrdering: true})
	if s := w.stream(1); !s.properties.GetExactlyOnceDeliveryEnabled() || !s.properties.GetMessageOrderingEnabled() {
		t.Errorf("announced %v", s.properties)
	} else {
		s.cancel()
		for _, err := s.Recv(); err == nil; _, err = s.Recv() {
		}
	}
	w.publish("A", "a0", "a1", "a2")
	got := w.pull()
	reasons := func(ids ...string) map[string]string {
		_, err := w.Acknowledge(w.context(), &pubsubpb.AcknowledgeRequest{Subscription: subscriptionName, AckIds: ids})
		for _, detail := range status.Convert(err).Details() {
			if info, ok := detail.(*errdetails.ErrorInfo); ok {
				// Google's clients read the metadata only under these names.
				if info.GetReason() != "EXACTLY_ONCE_ACKID_FAILURE" || info.GetDomain() != "pubsub.googleapis.com" {
					t.Errorf("the error's reason is %s of %s", info.GetReason(), info.GetDomain())
				}
				return info.GetMetadata()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return nil
	}
	if got := reasons(got[1].GetAckId())[got[1].GetAckId()]; got != "TRANSIENT_FAILURE_UNORDERED_ACK_ID" {
		t.Errorf("out of order: %q", got)
	}
	if failed := reasons(got[1].GetAckId(), got[0].GetAckId()); failed != nil {
		t.Errorf("both in one request: %v", failed)
	}
	if got := reasons(got[0].GetAckId())[got[0].GetAckId()]; got != "PERMANENT_FAILURE_INVALID_ACK_ID" {
		t.Errorf("a second time: %q", got)
	}
	w.clock.Advance(11 * time.Second)
	if got := reasons(got[2].GetAckId())[got[2].GetAckId()]; got != "PERMANENT_FAILURE_INVALID_ACK_ID" {
		t.Errorf("after the deadline: %q", got)
	}
	wantTexts(t, w.pull(), "a2") // and no acknowledged message
}

func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "A"} {
		w := newWorld(t, localpubsub.Options{})
		w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true, RetryPolicy: &pubsubpb.RetryPolicy{
			MinimumBackoff: durationpb.New(2 * time.Second), MaximumBackoff: durationpb.New(7 * time.Second),
		}})
		w.publish(key, "m")
		for _, wait := range []time.Duration{2 * time.Second, 4 * time.Second, 7 * time.Second, 7 * time.Second} {
			w.modify(0, w.pull()...)
			w.clock.Advance(wait - time.Millisecond)
			wantTexts(t, w.pull())
			w.clock.Advance(time.Millisecond)
		}
		wantTexts(t, w.pull(), "m")
	}
}

func TestStreamEndsWithItsSubscription(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end  func(*world) error
		want codes.Code
	}{
		"deleted": {func(w *world) error {
			_, err := w.DeleteSubscription(w.context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: subscriptionName})
			return err
		}, codes.NotFound},
		"detached": {func(w *world) error {
			_, err := w.DetachSubscription(w.context(), &pubsubpb.DetachSubscriptionRequest{Subscription: subscriptionName})
			return err
		}, codes.FailedPrecondition},
		"forgotten": {func(w *world) error { w.Forget(); return nil }, codes.Unavailable},
		"closed":    {func(w *world) error { return w.Close() }, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, localpubsub.Options{})
			w.subscribe(&pubsubpb.Subscription{})
			s := w.stream(0)
			if err := test.end(w); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Recv(); status.Code(err) != test.want {
				t.Errorf("the stream ends with %v, want %s", err, test.want)
			}
		})
	}
}

func TestClientClosesItsSide(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{})
	s := w.stream(0)
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v, want a plain end", err)
	}
}

func TestEachResponseCarriesTheProperties(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{})
	s := w.stream(0)
	if _, err := w.UpdateSubscription(w.context(), &pubsubpb.UpdateSubscriptionRequest{
		Subscription: &pubsubpb.Subscription{Name: subscriptionName, EnableExactlyOnceDelivery: true},
		UpdateMask:   &fieldmaskpb.FieldMask{Paths: []string{"enable_exactly_once_delivery"}},
	}); err != nil {
		t.Fatal(err)
	}
	w.publish("", "m")
	response, err := s.Recv()
	if err != nil || !response.GetSubscriptionProperties().GetExactlyOnceDeliveryEnabled() {
		t.Fatalf("received %v, %v", response, err)
	}
	id := response.GetReceivedMessages()[0].GetAckId()
	if err := s.Send(&pubsubpb.StreamingPullRequest{AckIds: []string{id}}); err != nil {
		t.Fatal(err)
	}
	if response, err = s.Recv(); err != nil || len(response.GetAcknowledgeConfirmation().GetAckIds()) != 1 || !response.GetSubscriptionProperties().GetExactlyOnceDeliveryEnabled() {
		t.Errorf("confirmation %v, %v", response, err)
	}
	if err := s.Send(&pubsubpb.StreamingPullRequest{AckIds: []string{id}}); err != nil {
		t.Fatal(err)
	}
	if response, err = s.Recv(); err != nil || len(response.GetAcknowledgeConfirmation().GetInvalidAckIds()) != 1 {
		t.Errorf("confirmation %v, %v", response, err)
	}
}

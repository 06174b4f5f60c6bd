package localpubsub_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/localpubsub"
)

func ordered(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true})
	return w
}

func TestNackBringsTheLaterOnesOfItsKeyAgain(t *testing.T) {
	t.Parallel()
	w := ordered(t)
	w.publish("A", numbered("a", 6)...)
	w.publish("B", "b0")
	s := w.stream(0)
	got := s.receive(7)
	byText := map[string]*pubsubpb.ReceivedMessage{}
	for _, m := range got {
		byText[string(m.GetMessage().GetData())] = m
	}
	w.ack(byText["a0"], byText["a3"], byText["b0"])
	w.modify(0, byText["a2"])
	// a1 is still leased, a3 was acknowledged: both as documented.
	wantTexts(t, s.receive(4), "a2", "a3", "a4", "a5")
	w.ack(byText["a1"])
	s.quiet()
}

func TestMissedDeadlineBringsTheLaterOnesOfItsKeyAgain(t *testing.T) {
	t.Parallel()
	w := ordered(t)
	w.publish("A", numbered("a", 4)...)
	s := w.stream(0)
	got := s.receive(4)
	w.ack(got[2])
	w.modify(60, got[0], got[3])
	w.clock.Advance(11 * time.Second)
	wantTexts(t, s.receive(3), "a1", "a2", "a3")
}

// A redelivered message is followed by all later ones of its key. An acknowledgement of an earlier
// delivery of these does not count, also after the redelivery has begun.
func TestStaleAcknowledgementAfterARedelivery(t *testing.T) {
	t.Parallel()
	for name, nacked := range map[string][]int{"of the first": {0}, "of the second, then of the first": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ordered(t)
			w.publish("A", numbered("a", 3)...)
			old := w.pull()
			for _, i := range nacked {
				w.modify(0, old[i])
			}
			again := w.pullUpTo(1)
			wantTexts(t, again, "a0")
			w.ack(old[1], old[2])
			w.ack(again...)
			wantTexts(t, w.pull(), "a1", "a2")
		})
	}
}

// The late acknowledgement of the message that was itself nacked counts.
func TestLateAcknowledgementOfANackedMessage(t *testing.T) {
	t.Parallel()
	w := ordered(t)
	w.publish("A", numbered("a", 3)...)
	old := w.pull()
	w.modify(0, old[0])
	w.ack(old[0])
	wantTexts(t, w.pull(), "a1", "a2")
}

func TestKeyOfDeadStreamWaitsForItsDeadline(t *testing.T) {
	t.Parallel()
	w := ordered(t)
	first := w.stream(2)
	w.publish("A", numbered("a", 4)...)
	w.publish("B", numbered("b", 4)...)
	first.receive(2)
	first.cancel()
	for _, err := first.Recv(); err == nil; _, err = first.Recv() {
	}
	second := w.stream(0)
	// The messages of the dead stream belong to one or two keys; none of these
	// keys is delivered.
	w.publish("C", "c0")
	for {
		got := second.receive(1)
		if got[len(got)-1].GetMessage().GetOrderingKey() == "C" {
			break
		}
	}
	second.quiet()
	w.clock.Advance(11 * time.Second)
	positions := map[string]int{}
	for _, m := range second.receive(6) {
		key := m.GetMessage().GetOrderingKey()
		if want := numbered(string(key[0]|0x20), 4)[positions[key]]; string(m.GetMessage().GetData()) != want {
			t.Fatalf("received %q, want %q next of its key", m.GetMessage().GetData(), want)
		}
		positions[key]++
	}
}

func TestUnaryPullHasOneBatchOfAKeyAtATime(t *testing.T) {
	t.Parallel()
	w := ordered(t)
	w.publish("A", "a0", "a1")
	got := w.pull()
	wantTexts(t, got, "a0", "a1")
	w.publish("A", "a2")
	w.publish("B", "b0")
	wantTexts(t, w.pull(), "b0")
	w.ack(got...)
	wantTexts(t, w.pull(), "a2")
}

func TestOneKeyGoesToOneStream(t *testing.T) {
	t.Parallel()
	w := ordered(t)
	first := w.stream(1)
	w.publish("A", "a0", "a1")
	got := first.receive(1)
	second := w.stream(0)
	w.publish("B", "b0")
	wantTexts(t, second.receive(1), "b0")
	second.quiet()
	w.ack(got...)
	// No message of A is leased now: either consumer may get it.
	w.publish("A", "a2")
	received := make(chan string, 2)
	for _, s := range []*stream{first, second} {
		go func() {
			for {
				response, err := s.Recv()
				if err != nil {
					return
				}
				for _, m := range response.GetReceivedMessages() {
					received <- string(m.GetMessage().GetData())
					if _, err := w.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{
						Subscription: subscriptionName, AckIds: []string{m.GetAckId()},
					}); err != nil {
						return
					}
				}
			}
		}()
	}
	for _, want := range []string{"a1", "a2"} {
		if got := <-received; got != want {
			t.Errorf("received %q, want %q", got, want)
		}
	}
}

// Keys take turns on a stream, also if one of them always has another message.
func TestBusyKeyLeavesTurnsToTheOthers(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"B", ""} {
		w := ordered(t)
		s := w.stream(2)
		w.publish("A", numbered("a", 10)...)
		got := s.receive(2)
		w.publish(other, "b")
		for turns := 0; string(got[0].GetMessage().GetData()) != "b"; turns++ {
			if turns == 10 {
				t.Fatalf("the message of key %q did not come within %d messages", other, turns)
			}
			w.publish("A", "more")
			w.ack(got[0])
			got = append(got[1:], s.receive(1)...)
		}
	}
}

// Messages with a key and messages without one take turns, also if there are always more of the others.
func TestMessagesWithAndWithoutKeysTakeTurns(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{"one with a key": {"", "A"}, "one without": {"A", ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := ordered(t)
			for i := range 4 {
				key := keys[0]
				if key != "" {
					key = fmt.Sprint(key, i)
				}
				w.publish(key, "many")
			}
			w.publish(keys[1], "one")
			var got []*pubsubpb.ReceivedMessage
			for range 3 {
				got = append(got, w.pullUpTo(1)...)
			}
			if !strings.Contains(strings.Join(texts(got), " "), "one") {
				t.Errorf("the first three are %q", texts(got))
			}
		})
	}
}

// A key whose messages are settled goes to any stream, also if the stream that had it has no room for more.
func TestKeyLeavesAFullStream(t *testing.T) {
	t.Parallel()
	w := ordered(t)
	full := w.streamOf(&pubsubpb.StreamingPullRequest{MaxOutstandingBytes: 1000})
	w.publish("A", "a0")
	got := full.receive(1)
	w.publish("B", strings.Repeat("b", 2000))
	full.receive(1)
	w.publish("A", "a1")
	free := w.stream(0)
	free.quiet() // A still has a message at the full stream
	w.ack(got...)
	wantTexts(t, free.receive(1), "a1")
}

// An acknowledged message that is kept for a seek leaves at the end of its retention, and the later messages of its
// key stay.
func TestRetainedMessageLeavesItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{
		EnableMessageOrdering: true, EnableExactlyOnceDelivery: true, RetainAckedMessages: true,
		MessageRetentionDuration: durationpb.New(10 * time.Minute),
	})
	w.publish("A", "a0")
	w.clock.Advance(9 * time.Minute)
	w.publish("A", "a1", "a2")
	got := w.pull()
	w.ack(got[0])
	w.modify(600, got[1:]...)
	w.clock.Advance(2 * time.Minute)
	w.ack(got[1]) // in order
	w.ack(got[2])
}

// A request of a stream nacks several messages of a key, first the earliest. All of them count.
func TestNacksOfAStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.deadLetters(&pubsubpb.Subscription{EnableMessageOrdering: true, EnableExactlyOnceDelivery: true})
	s := w.stream(0)
	w.publish("A", "a0", "a1", "a2")
	got := s.receive(3)
	if err := s.Send(&pubsubpb.StreamingPullRequest{
		ModifyDeadlineAckIds: ackIDs(got), ModifyDeadlineSeconds: []int32{0, 0, 60},
	}); err != nil {
		t.Fatal(err)
	}
	response, err := s.Recv()
	confirmed := response.GetModifyAckDeadlineConfirmation()
	if err != nil || len(confirmed.GetAckIds()) != 3 || len(confirmed.GetInvalidAckIds()) > 0 {
		t.Errorf("confirmation %v, %v, want all three", response, err)
	}
	for i, m := range s.receive(3) {
		if want := []int32{2, 2, 1}[i]; m.GetDeliveryAttempt() != want {
			t.Errorf("%s has attempt %d, want %d", m.GetMessage().GetData(), m.GetDeliveryAttempt(), want)
		}
	}
}

// A late acknowledgement leaves a key in line that has nothing to send. The next message of the key is sent nevertheless.
func TestKeyGoesOnAfterALateAcknowledgement(t *testing.T) {
	t.Parallel()
	w := ordered(t)
	s := w.streamOf(&pubsubpb.StreamingPullRequest{MaxOutstandingBytes: 1000})
	w.publish("A", "a0", "a1")
	got := s.receive(2)
	w.publish("B", strings.Repeat("b", 2000))
	large := s.receive(1)
	w.modify(0, got[1]) // the stream has no room for it
	w.ack(got[1])
	w.ack(large...)
	s.quiet()
	w.publish("A", "a2")
	wantTexts(t, s.receive(1), "a2")
}

// The end of a message's retention makes way for the next message of its key, and settles the message.
func TestMessagePastItsRetentionLeavesItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true, MessageRetentionDuration: durationpb.New(10 * time.Minute)})
	w.publish("A", "a0")
	w.clock.Advance(9 * time.Minute)
	old := w.pull()
	w.modify(600, old...)
	w.publish("A", "a1")
	wantTexts(t, w.pull())
	w.clock.Advance(time.Minute)
	wantTexts(t, w.pull(), "a1")
	w.modify(0, old...)
	w.ack(old...)
}

// A message stays as long as its topic or its subscription keeps it.
func TestTopicKeepsMessagesOfASubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	if _, err := w.CreateTopic(w.context(), &pubsubpb.Topic{
		Name: topicName, MessageRetentionDuration: durationpb.New(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	w.subscribe(&pubsubpb.Subscription{MessageRetentionDuration: durationpb.New(10 * time.Minute)})
	w.publish("", "m")
	w.clock.Advance(time.Hour - time.Nanosecond)
	got := w.pull()
	wantTexts(t, got, "m")
	w.modify(0, got...)
	w.clock.Advance(time.Nanosecond)
	wantTexts(t, w.pull())
}

// The retention of a topic ends with the topic. From then on the subscription's own retention applies.
func TestDeletedTopicKeepsNoMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	if _, err := w.CreateTopic(w.context(), &pubsubpb.Topic{
		Name: topicName, MessageRetentionDuration: durationpb.New(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	w.subscribe(&pubsubpb.Subscription{MessageRetentionDuration: durationpb.New(10 * time.Minute)})
	w.publish("", "m")
	if _, err := w.DeleteTopic(w.context(), &pubsubpb.DeleteTopicRequest{Topic: topicName}); err != nil {
		t.Fatal(err)
	}
	w.clock.Advance(11 * time.Minute)
	wantTexts(t, w.pull())
}

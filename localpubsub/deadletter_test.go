package localpubsub_test

import (
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub"
)

const (
	deadTopicName        = "projects/p/topics/dead"
	deadSubscriptionName = "projects/p/subscriptions/dead"
)

// deadLetters gives the subscription a policy of five attempts.
func (w *world) deadLetters(s *pubsubpb.Subscription) {
	w.t.Helper()
	if _, err := w.CreateTopic(w.context(), &pubsubpb.Topic{Name: deadTopicName}); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.CreateSubscription(w.context(), &pubsubpb.Subscription{
		Name: deadSubscriptionName, Topic: deadTopicName,
	}); err != nil {
		w.t.Fatal(err)
	}
	s.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: deadTopicName, MaxDeliveryAttempts: 5}
	w.subscribe(s)
}

func (w *world) dead() []*pubsubpb.ReceivedMessage {
	w.t.Helper()
	answer, err := w.Pull(w.context(), &pubsubpb.PullRequest{
		Subscription: deadSubscriptionName, MaxMessages: 1000, ReturnImmediately: true, //nolint:staticcheck // no wait wanted
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return answer.GetReceivedMessages()
}

func TestDeadLetter(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "A"} {
		w := newWorld(t, localpubsub.Options{})
		w.deadLetters(&pubsubpb.Subscription{EnableMessageOrdering: true})
		w.clock.Advance(123 * time.Microsecond)
		w.publish(key, "bad", "good")
		var bad *pubsubpb.ReceivedMessage
		for attempt := int32(1); attempt <= 5; attempt++ {
			wantTexts(t, w.dead())
			got := w.pull()
			bad = got[0]
			if key == "" && attempt > 1 {
				wantTexts(t, got, "bad")
			} else {
				wantTexts(t, got, "bad", "good")
			}
			if bad.GetDeliveryAttempt() != attempt {
				t.Errorf("delivery %d says attempt %d", attempt, bad.GetDeliveryAttempt())
			}
			if len(got) == 2 && got[1].GetDeliveryAttempt() != 1 {
				t.Errorf("the good one is said to be at attempt %d", got[1].GetDeliveryAttempt())
			}
			if len(got) == 2 {
				w.ack(got[1])
			}
			w.modify(0, bad)
		}
		dead := w.dead()
		wantTexts(t, dead, "bad")
		attributes := dead[0].GetMessage().GetAttributes()
		if attributes["CloudPubSubDeadLetterSourceDeliveryCount"] != "5" ||
			attributes["CloudPubSubDeadLetterSourceSubscription"] != "events" ||
			attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] != "p" ||
			attributes["CloudPubSubDeadLetterSourceTopicPublishTime"] != "2026-03-01T12:00:00.000123Z" ||
			dead[0].GetMessage().GetOrderingKey() != key {
			t.Errorf("dead letter %v", dead[0])
		}
		if key == "" {
			wantTexts(t, w.pull())
		}
		w.ack(bad) // too late: it is a dead letter, and stays one
		w.modify(0, bad)
		wantTexts(t, w.dead())
	}
}

// TestDeadLettersOfAKeyAreInOrder: dead letters of one key keep their order if their last attempts fail at once, by nacks of one
// request or by deadlines.
func TestDeadLettersOfAKeyAreInOrder(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*world, []*pubsubpb.ReceivedMessage){
		"nacks":     func(w *world, got []*pubsubpb.ReceivedMessage) { w.modify(0, got...) },
		"deadlines": func(w *world, _ []*pubsubpb.ReceivedMessage) { w.clock.Advance(11 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, localpubsub.Options{})
			w.deadLetters(&pubsubpb.Subscription{EnableMessageOrdering: true})
			w.publish("A", numbered("a", 4)...)
			w.publish("A", numbered("b", 2)...)
			for range 5 {
				got := w.pull()
				wantTexts(t, got, "a0", "a1", "a2", "a3", "b0", "b1")
				fail(w, got)
			}
			wantTexts(t, w.dead(), "a0", "a1", "a2", "a3", "b0", "b1")
			wantTexts(t, w.pull())
		})
	}
}

func TestMessageStaysWithoutDeadLetterTopic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.deadLetters(&pubsubpb.Subscription{})
	if _, err := w.DeleteTopic(w.context(), &pubsubpb.DeleteTopicRequest{Topic: deadTopicName}); err != nil {
		t.Fatal(err)
	}
	w.publish("", "m")
	for range 7 {
		got := w.pull()
		wantTexts(t, got, "m")
		w.modify(0, got...)
	}
}

// A dead letter counts as acknowledged. So a subscription that keeps acknowledged messages can bring it back. It then has all its
// attempts again.
func TestSeekBringsADeadLetterBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.deadLetters(&pubsubpb.Subscription{RetainAckedMessages: true})
	w.publish("", "m")
	for life := 1; life <= 2; life++ {
		for attempt := int32(1); attempt <= 5; attempt++ {
			got := w.pull()
			wantTexts(t, got, "m")
			if got[0].GetDeliveryAttempt() != attempt {
				t.Errorf("life %d: attempt %d, want %d", life, got[0].GetDeliveryAttempt(), attempt)
			}
			w.modify(0, got...)
		}
		wantTexts(t, w.pull())
		w.seekTo(worldTime)
	}
	dead := w.dead()
	wantTexts(t, dead, "m", "m")
	for _, m := range dead {
		if n := m.GetMessage().GetAttributes()["CloudPubSubDeadLetterSourceDeliveryCount"]; n != "5" {
			t.Errorf("a dead letter after %s attempts", n)
		}
	}
}

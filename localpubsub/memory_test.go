package localpubsub

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"
	"weak"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// TestForgottenMessagesLeaveTheMemory: a message that no subscription keeps takes no memory, even if
// no consumer has come for it.
func TestForgottenMessagesLeaveTheMemory(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(*subscription, *Clock){
		"past their retention": func(s *subscription, clock *Clock) {
			clock.Advance(11 * time.Minute)
			s.addNumbered(1, 4) // a queue that is not empty
		},
		"past their retention, behind newer ones": func(s *subscription, clock *Clock) {
			taken := newConsumer(10 * time.Minute)
			taken.maxMessages = 2
			if batch, err := s.batch(taken); err != nil || len(batch) != 2 {
				t.Error(batch, err)
			}
			clock.Advance(9 * time.Minute)
			s.addNumbered(1, 4)
			clock.Advance(2 * time.Minute)
		},
		"detached": func(s *subscription, _ *Clock) {
			s.lock()
			defer s.unlock()
			s.end(errors.New("detached"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := NewStillClock(time.Unix(1_000_000, 0))
			server := newServer(Options{Clock: clock})
			config := &pubsubpb.Subscription{Name: "projects/p/subscriptions/events", EnableMessageOrdering: true}
			if err := resource.CheckSubscription(config); err != nil {
				t.Fatal(err)
			}
			config.MessageRetentionDuration.Seconds = 600
			s := newSubscription(server, newTopic(server, &pubsubpb.Topic{}), config, nil)
			old := s.addNumbered(100, 200)
			forget(s, clock)
			runtime.GC()
			kept := 0
			for _, m := range old {
				if m.Value() != nil {
					kept++
				}
			}
			if kept > 0 || s.ready.len() > 4 || s.readyKeys.len() > 4 {
				t.Errorf("%d of %d messages are in memory, %d messages and %d keys in line", kept, len(old), s.ready.len(), s.readyKeys.len())
			}
			runtime.KeepAlive(s)
		})
	}
}

// addNumbered adds messages with the ids from first to last. Half of them have a key, each another.
func (s *subscription) addNumbered(first, last uint64) (added []weak.Pointer[message]) {
	s.lock()
	defer s.unlock()
	for id := first; id < last; id++ {
		m := &message{id: id, at: s.server.now().UnixNano(), raw: make([]byte, 100), in: &s.server.store}
		if id%2 == 0 {
			m.key = fmt.Sprint(id)
		}
		s.add(m)
		added = append(added, weak.Make(m))
	}
	s.schedule()
	return added
}

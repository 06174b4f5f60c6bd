package inbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// TestNoMessageStaysInAClosedStream ends a consumer while messages are on their way to it. Each
// of them is applied, or comes again as soon as the pause of the subscription is over, long
// before leases end: the broker's clock goes ahead by less than those.
func TestNoMessageStaysInAClosedStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 100)
	const n = 2000
	for from := range n / 100 {
		publish := &pubsubpb.PublishRequest{Topic: topic}
		for i := range 100 {
			e := event(fmt.Sprint("a", 100*from+i), 1)
			e.Payload = make([]byte, 4<<10)
			m := e.Message()
			m.OrderingKey = "" // the messages of a request have one key
			publish.Messages = append(publish.Messages, m)
		}
		if _, err := w.client.TopicAdminClient.Publish(t.Context(), publish); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the first messages have come", func() bool { return w.came() > 0 })
	w.stop()
	left := w.backlog(t)
	if left == 0 {
		t.Fatal("nothing was on its way")
	}
	w.clock.Advance(5 * time.Second)
	again := map[string]bool{}
	for {
		answer, err := w.client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: "projects/test/subscriptions/" + subscription, MaxMessages: 1000,
			ReturnImmediately: true, //nolint:staticcheck // no wait wanted
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.GetReceivedMessages()) == 0 {
			break
		}
		for _, m := range answer.GetReceivedMessages() {
			again[m.GetMessage().GetMessageId()] = true
		}
	}
	if len(again) != left {
		t.Errorf("%d messages come again, of %d without an acknowledgement", len(again), left)
	}
}

// backlog is the number of messages that the broker keeps for the consumer.
func (w *world) backlog(t *testing.T) int {
	t.Helper()
	answer, err := http.Get("http://" + w.server.Addr() + "/control/backlog")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var unacked map[string]int
	if err := json.NewDecoder(answer.Body).Decode(&unacked); err != nil {
		t.Fatal(err)
	}
	return unacked["projects/test/subscriptions/"+subscription]
}

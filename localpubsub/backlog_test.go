package localpubsub_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub"
)

// TestBacklog: a message counts until it is acknowledged, also while a consumer has it, and
// not after it, also if it is retained.
func TestBacklog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true, RetainAckedMessages: true})
	want := func(n string) {
		t.Helper()
		answer, err := http.Get("http://" + w.Addr() + "/control/backlog")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if got := strings.TrimSpace(string(text)); err != nil || got != `{"`+subscriptionName+`":`+n+`}` {
			t.Errorf("backlog %s (%v), want %s", got, err, n)
		}
	}
	want("0")
	w.publish("", "a")
	w.publish("key", "b", "c")
	want("3")
	taken := w.pull()
	want("3")
	w.ack(taken[0])
	want("2")
	w.ack(taken[1:]...)
	want("0")
}

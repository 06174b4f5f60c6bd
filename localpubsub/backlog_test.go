package localpubsub_test

import (
	"encoding/json"
	"net/http"
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
	want := func(n int) {
		t.Helper()
		if got := w.unacked(); len(got) != 1 || got[subscriptionName] != n {
			t.Errorf("backlog %v, want %d", got, n)
		}
	}
	want(0)
	w.publish("", "a")
	w.publish("key", "b", "c")
	want(3)
	taken := w.pull()
	want(3)
	w.ack(taken[0])
	want(2)
	w.ack(taken[1:]...)
	want(0)
}

// unacked returns the server's backlog of each subscription.
func (w *world) unacked() (backlog map[string]int) {
	w.t.Helper()
	answer, err := http.Get("http://" + w.Addr() + "/control/backlog")
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&backlog); err != nil {
		w.t.Fatal(err)
	}
	return backlog
}

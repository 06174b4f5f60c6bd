package localpubsub_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/localpubsub"
)

const mebi = 1 << 20

// The file of a busy server stays in proportion to the live data, and a rewrite
// loses no change that is made meanwhile.
func TestCompactionUnderLoad(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	w := newWorld(t, localpubsub.Options{File: path})
	generations := w.SetSlack(mebi)
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true})
	w.subscribe(&pubsubpb.Subscription{Name: "projects/p/subscriptions/small", Filter: "attributes:small"})
	const publishers, rounds, small = 4, 200, 5
	var load sync.WaitGroup
	for n := range publishers {
		load.Go(func() {
			for range rounds {
				req := &pubsubpb.PublishRequest{Topic: topicName, Messages: []*pubsubpb.PubsubMessage{
					{Data: bytes.Repeat([]byte("x"), 10<<10), OrderingKey: fmt.Sprint(n)},
				}}
				for range small {
					req.Messages = append(req.Messages, &pubsubpb.PubsubMessage{
						Attributes: map[string]string{"small": "yes"}, OrderingKey: fmt.Sprint(n),
					})
				}
				if _, err := w.Publish(w.context(), req); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for left := publishers * rounds * (1 + small); left > 0 && !t.Failed(); {
		answer, err := w.Pull(w.context(), &pubsubpb.PullRequest{Subscription: subscriptionName, MaxMessages: 100})
		if err != nil {
			t.Fatal(err)
		}
		if got := answer.GetReceivedMessages(); len(got) > 0 {
			w.ack(got...)
			left -= len(got)
		}
	}
	load.Wait()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := generations(); n < 3 || info.Size() > 4*mebi {
		t.Errorf("of 8 MiB, the file has %d KiB with next to nothing in it, after it was written anew %d times", info.Size()>>10, n)
	}
	want := w.records()
	if kept := len(want) - len([]string{"topic", "subscription", "filtered one", "counts"}); kept != publishers*rounds*small {
		t.Errorf("%d messages are left, want %d", kept, publishers*rounds*small)
	}
	if diff := cmp.Diff(want, w.crashed(path).records()); diff != "" {
		t.Errorf("before and after a restart:\n%s", diff)
	}
}

package localpubsub_test

import (
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
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

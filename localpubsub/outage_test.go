package localpubsub_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/localpubsub"
)

// TestAnOutageEndsABusyStream: a stream with messages to send ends in an outage, and does not send all of them first.
func TestAnOutageEndsABusyStream(t *testing.T) {
	t.Parallel()
	const messages = 40
	w := plain(t)
	busy := unread(t, w)
	for range messages {
		w.publish("", strings.Repeat("m", 300_000)) // gRPC takes a few of them, and blocks the next response
	}
	w.faults(localpubsub.Fault{Kind: localpubsub.Outage, Method: "StreamingPull"})
	for received := 0; ; {
		response, err := busy.Recv()
		if status.Code(err) == codes.Unavailable {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if received += len(response.GetReceivedMessages()); received == messages {
			t.Fatal("the stream has sent all messages during the outage")
		}
	}
}

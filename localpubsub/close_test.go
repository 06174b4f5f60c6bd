package localpubsub_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"example.com/lockstep/localpubsub"
)

// TestCloseEndsLateCalls closes a server while a call waits that its caller has given up. The time is
// virtual, so the clock tells whether Close has waited for the call.
func TestCloseEndsLateCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := bufconn.Listen(1 << 20)
		server, err := localpubsub.Start(localpubsub.Options{Listener: listener})
		if err != nil {
			t.Fatal(err)
		}
		if err := server.SetFaults(1, localpubsub.Fault{Kind: localpubsub.Late, Delay: localpubsub.Duration(10 * time.Minute)}); err != nil {
			t.Fatal(err)
		}
		conn, err := grpc.NewClient("passthrough:///"+server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = pubsubpb.NewPublisherClient(conn).CreateTopic(ctx, &pubsubpb.Topic{Name: topicName})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("create a topic = %v, want DEADLINE_EXCEEDED", err)
		}
		closing := time.Now()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if waited := time.Since(closing); waited >= time.Minute {
			t.Errorf("Close took %s", waited)
		}
	})
}

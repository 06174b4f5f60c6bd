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
		w := inBubble(t)
		w.faults(localpubsub.Fault{Kind: localpubsub.Late, Delay: localpubsub.Duration(10 * time.Minute)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.CreateTopic(ctx, &pubsubpb.Topic{Name: topicName})
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("create a topic = %v, want DEADLINE_EXCEEDED", err)
		}
		closing := time.Now()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if waited := time.Since(closing); waited >= time.Minute {
			t.Errorf("Close took %s", waited)
		}
	})
}

// TestLateCallOutlivesItsCaller: a pull whose caller has given up waits for a message, and takes it.
func TestLateCallOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := inBubble(t)
		defer w.Close()
		w.subscribe(&pubsubpb.Subscription{})
		w.faults(localpubsub.Fault{Kind: localpubsub.Late, Method: "Pull", Delay: localpubsub.Duration(2 * time.Second), Times: 1})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := w.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscriptionName, MaxMessages: 1})
		wantCode(t, err, codes.DeadlineExceeded)
		<-time.After(2 * time.Second) // of the virtual time
		synctest.Wait()
		w.publish("", "m")
		synctest.Wait()
		wantTexts(t, w.pull())
	})
}

// inBubble returns a world without a network, for a bubble of synctest.
func inBubble(t *testing.T) *world {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server, err := localpubsub.Start(localpubsub.Options{Listener: listener})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &world{
		Server: server, PublisherClient: pubsubpb.NewPublisherClient(conn), SubscriberClient: pubsubpb.NewSubscriberClient(conn),
		t: t, conn: conn,
	}
}

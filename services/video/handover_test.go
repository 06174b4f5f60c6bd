package video

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/services/video/aggregate"
)

// wakeCounter is a relay that counts the wake-ups.
type wakeCounter struct {
	*outbox.Relay

	count *int
}

func (c wakeCounter) Wake() { *c.count++ }

// A write hands its event over to the relay of its process: the row is written with the relay's lease,
// by the transaction of the video. The broker never answers, so that the lease stays.
func TestAWriteHandsItsEventOver(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	pool, err := connect.OpenPool(t.Context(), db.VideoURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	silent := porttest.Listen(t)
	defer silent.Close()
	conn, err := grpc.NewClient(silent.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	relay := outbox.NewRelay(pool, client, Topics("test"), slog.New(slog.DiscardHandler), func() {}, outbox.Options{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = relay.Run(ctx) }()
	defer func() { stop(); <-ended }()

	woken := 0
	videos := newServices(pool, wakeCounter{relay, &woken}).videos
	deadline := time.Now().Add(time.Minute)
	for writes := 1; ; writes++ { // until the relay has registered
		draft := Video{UploaderID: uuid.New(), Title: "Pompeii"}
		if _, err := videos.Create(t.Context(), draft, aggregate.WriteOptions{Caller: everyone}, nil); err != nil {
			t.Fatal(err)
		}
		var handed int
		err := pool.QueryRow(t.Context(), `SELECT count(*) FROM outbox WHERE lock_token IS NOT NULL AND xmin = xact::xid`).Scan(&handed)
		if err != nil {
			t.Fatal(err)
		}
		if handed > 0 && woken < writes {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("of %d events none was handed over, %d wake-ups", writes, woken)
		}
	}
}

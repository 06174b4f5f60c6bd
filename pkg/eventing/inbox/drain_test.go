package inbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
)

// TestNoMessageStaysInAClosedStream ends a consumer while messages are on their way to it. Each
// of them is applied, or comes again as soon as the pause of the subscription is over, long
// before leases end: the broker's clock goes ahead by less than those.
func TestNoMessageStaysInAClosedStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 100)
	w.publishMany(t, 2000)
	pgtest.Until(t, "the first messages have come", func() bool { return w.came() > 0 })
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

// publishMany publishes events of n aggregates, 4 KiB each.
func (w *world) publishMany(t *testing.T, n int) {
	t.Helper()
	for from := 0; from < n; from += 100 {
		publish := &pubsubpb.PublishRequest{Topic: topic}
		for i := range 100 {
			e := event(fmt.Sprint("a", from+i), 1)
			e.Payload = make([]byte, 4<<10)
			m := e.Message()
			m.OrderingKey = "" // the messages of a request have one key
			publish.Messages = append(publish.Messages, m)
		}
		if _, err := w.client.TopicAdminClient.Publish(t.Context(), publish); err != nil {
			t.Fatal(err)
		}
	}
}

// TestABrokerThatIgnoresTheEndSendsOneWindow: a broker does not hear of the half-close. Each
// message that was given back while the stream is open would let it send another one, until all
// have come. What comes is the window of before, one of the end, and a part of one while the
// client closes the stream.
func TestABrokerThatIgnoresTheEndSendsOneWindow(t *testing.T) {
	t.Parallel()
	const n = 5000 // some ten windows
	w := newWorld(t, 100)
	w.deaf.Store(true)
	w.block(t)
	w.publishMany(t, n)
	pgtest.Until(t, "most of a window has come", func() bool { return w.all() > 300 })
	w.stop()
	window := int64(0) // of all streams, and less, with the bytes around the payload
	for _, stream := range w.opened() {
		window += stream.bytes / (4 << 10)
	}
	if got := w.all(); got > 3*window {
		t.Errorf("%d messages came, and a window is %d at most", got, window)
	}
}

func (w *world) all() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.received.messages
}

// block lets no event be applied until the transaction ends.
func (w *world) block(t *testing.T) pgx.Tx {
	t.Helper()
	tx := pgtest.Begin(t, w.db)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	pgtest.Exec(t, tx, `LOCK TABLE model IN EXCLUSIVE MODE`)
	return tx
}

// A consumer ends in time although its transaction, the database and the stream hang. Cloud Run kills the
// process 10 s after the signal, of which the server takes 5.5. The limit of the test leaves room for a busy machine, and is
// below the sum of what each part may take alone.
func TestADrainEndsAlthoughDatabaseAndStreamHang(t *testing.T) {
	t.Parallel()
	if whole := leaveTime + hookTime; whole > 3600*time.Millisecond || drainTime+closeTime >= leaveTime {
		t.Errorf("a consumer may take %s, of which a transaction takes %s and the streams %s", whole, drainTime, closeTime)
	}
	b := newBench(t)
	applying, hangs := make(chan struct{}), make(chan struct{})
	h := b.handler(decode)
	h.apply = func(ctx context.Context, _ pgx.Tx, _ []Change) ([]Outcome, error) {
		close(applying)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c := NewConsumer(b.db, b.client, subscription, h, slog.New(slog.DiscardHandler), func() {}, Options{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.RunFrom(ctx, func(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
			m := event("a", 1).Message()
			deliver(ctx, &pubsub.Message{ID: "1", Data: m.Data, Attributes: m.Attributes, PublishTime: time.Now()})
			<-hangs
			return nil
		})
	}()
	<-applying
	lock, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, lock, `LOCK TABLE inbox_runs IN ACCESS EXCLUSIVE MODE`)
	stop()
	select {
	case err = <-ended:
	case <-time.After(leaveTime + 2*time.Second):
		t.Errorf("the consumer has not ended %s after it was cancelled", leaveTime+2*time.Second)
		err = <-ended
	}
	close(hangs)
	if err := errors.Join(err, lock.Rollback(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestTheEndOfAStreamCostsNoAck: a broker answers the half-close with an error that cannot be
// retried, while the last transaction is in hand.
func TestTheEndOfAStreamCostsNoAck(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 100)
	w.mu.Lock()
	w.answer, w.answered = status.Error(codes.InvalidArgument, "no half-close here"), make(chan struct{})
	w.mu.Unlock()
	blocking := w.block(t)
	w.publish(t, event("a", 1))
	w.eventually(t, 1, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'model'::regclass`)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.stop()
	}()
	<-w.answered
	pgtest.End(t, blocking.Rollback)
	<-ended
	w.eventually(t, 1, withDone)
	if n := w.backlog(t); n != 0 {
		t.Errorf("%d messages have no acknowledgement", n)
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

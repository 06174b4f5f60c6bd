package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// While a batch commits, all messages that the client may have outstanding come in, and no
// callback has to wait: one that did would hold up its key. These messages then share
// transactions, a thousand each.
func TestMessagesDuringABatchShareTheNext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	applying, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	committed, done := 0, make(chan struct{})
	var c *Consumer
	h := &functions{
		decode: decode, repair: b.repair,
		apply: func(_ context.Context, _ pgx.Tx, changes []Change) ([]Outcome, error) {
			select {
			case <-goOn:
			default:
				close(applying)
				<-goOn
			}
			return slices.Repeat([]Outcome{Applied}, len(changes)), nil
		},
		committed: func(keys ...string) {
			if committed += len(keys); committed == c.subscriber.ReceiveSettings.MaxOutstandingMessages {
				close(done)
			}
		},
	}
	c = NewConsumer(b.db, b.client, subscription, h, slog.New(slog.DiscardHandler), func() {}, Options{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.RunFrom(ctx, func(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
			for i := range c.subscriber.ReceiveSettings.MaxOutstandingMessages {
				e := event(fmt.Sprint("a", i), 1)
				deliver(ctx, &pubsub.Message{ID: fmt.Sprint(i), Data: e.Payload, Attributes: e.Message().Attributes, PublishTime: time.Now()})
				if i == 0 {
					<-applying
				}
			}
			release()
			<-ctx.Done()
			return nil
		})
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Errorf("of %d messages %d are in hand: a callback waits", c.subscriber.ReceiveSettings.MaxOutstandingMessages, c.budget.inHand().messages)
		release()
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	rows, _ := b.db.Query(t.Context(), `SELECT count(*) FROM inbox WHERE status = 'done' GROUP BY xmin::text ORDER BY 1`)
	batches, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	want := append([]int64{1, 999}, slices.Repeat([]int64{1000}, 9)...)
	if diff := cmp.Diff(want, batches); err != nil || diff != "" {
		t.Errorf("messages by transaction, %v (-want +got):\n%s", err, diff)
	}
}

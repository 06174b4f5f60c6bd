package inbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// applier is a running consumer of ours. It reports the size of each batch that it has committed.
type applier struct {
	inbox.Handler

	batch     int
	committed chan int
	stop      context.CancelFunc
	ended     chan struct{}
	err       error // why it has ended
}

// startApplier starts a consumer. run runs it with the given handler. The caller must close the
// applier.
func startApplier(ctx context.Context, m *rig.ReadModel, run func(context.Context, inbox.Handler) error) *applier {
	ctx, stop := context.WithCancel(ctx)
	a := &applier{Handler: m.Projector.Handler(), committed: make(chan int), stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(a.ended)
		a.err = run(ctx, a)
	}()
	return a
}

// Apply applies a batch. A batch whose transaction fails is applied again.
func (a *applier) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	a.batch = len(changes)
	return a.Handler.Apply(ctx, tx, changes)
}

// Committed reports the batch.
func (a *applier) Committed(ctx context.Context, moved ...consistency.Position) {
	select {
	case a.committed <- a.batch:
	case <-ctx.Done():
	}
	a.Handler.Committed(ctx, moved...)
}

// wait returns when n more events are committed.
func (a *applier) wait(n int) error {
	for n > 0 {
		select {
		case committed := <-a.committed:
			n -= committed
		case <-a.ended:
			return errors.Join(errors.New("the consumer has ended"), a.err)
		}
	}
	return nil
}

// close stops the consumer.
func (a *applier) close() error {
	a.stop()
	<-a.ended
	return a.err
}

// fed is an applier that takes its messages from memory.
type fed struct {
	*applier

	client *pubsub.Client
	feed   chan []*pubsub.Message
}

// startFed starts a consumer that waits for messages from memory. The caller must close it.
func startFed(ctx context.Context, m *rig.ReadModel, opts inbox.Options) (*fed, error) {
	client, err := rig.UnreachableClient(ctx)
	if err != nil {
		return nil, err
	}
	f := &fed{client: client, feed: make(chan []*pubsub.Message)}
	f.applier = startApplier(ctx, m, func(ctx context.Context, h inbox.Handler) error {
		c := inbox.NewConsumer(m.Pool, client, rig.Topic, h, slog.New(slog.DiscardHandler), func() {}, opts)
		return c.RunFrom(ctx, f.receive)
	})
	return f, nil
}

func (f *fed) receive(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
	for {
		select {
		case messages := <-f.feed:
			for _, message := range messages {
				deliver(ctx, message)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// apply returns how long the consumer takes to commit the messages.
func (f *fed) apply(messages []*pubsub.Message) (time.Duration, error) {
	start := time.Now()
	select {
	case f.feed <- messages:
	case <-f.ended: // wait returns the error
	}
	err := f.wait(len(messages))
	return time.Since(start), err
}

func (f *fed) close() error { return errors.Join(f.applier.close(), f.client.Close()) }

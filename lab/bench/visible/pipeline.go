package visible

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// The moments of an event.
const (
	atCommit  = iota // the writer's commit has returned
	atPublish        // the broker has acknowledged
	atReceipt        // the client has delivered it
	atVisible        // the consumer's commit has returned
	moments
)

// legs are the names of the intervals between two moments of an event.
var legs = [moments - 1]string{"commit_to_publish", "publish_to_receive", "receive_to_visible"}

// pipeline is the pair without its APIs. It has a database for the writer, with a relay. It also
// has a broker, and a consumer with a database on another server.
type pipeline struct {
	*rig.RelayFixture

	model    *rig.ReadModel
	stop     context.CancelFunc // nil: no consumer was started
	consumed chan error

	mu   sync.Mutex
	seen map[string]*[moments]time.Time // by aggregate; each has one event
	done int                            // the aggregates of seen whose event is visible
}

// startPipeline returns a pipeline with running relays and a running consumer. The caller must
// close the pipeline.
func startPipeline(ctx context.Context, p *rig.Postgres, relays int) (_ *pipeline, err error) {
	l := &pipeline{consumed: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close(ctx))
		}
	}()
	l.forget()
	if l.model, err = rig.StartReadModel(ctx); err != nil {
		return nil, err
	}
	if l.RelayFixture, err = rig.StartRelayFixture(ctx, p, rig.Relaying{Relays: relays, Acknowledged: l.acknowledged}); err != nil {
		return nil, err
	}
	l.forget() // events that the fixture published before
	if err := rig.Subscribe(ctx, l.Probe.Client, rig.Topic, true); err != nil {
		return nil, err
	}
	l.consume(ctx)
	if err := measure.Flood(ctx, rig.Committers, time.Second/4, l.commit); err != nil { // connections prepare their statements
		return nil, err
	}
	_, _, err = l.latencies(ctx)
	return l, err
}

// consume starts the consumer.
func (l *pipeline) consume(ctx context.Context) {
	c := inbox.NewConsumer(l.model.Pool, l.Probe.Client, rig.Topic, watched{l.model.Projector.Handler(), l},
		slog.New(slog.DiscardHandler), func() {}, inbox.Options{})
	ctx, l.stop = context.WithCancel(ctx)
	go func() { l.consumed <- c.Run(ctx) }()
}

// Close stops the consumer, then the relay, then both databases.
func (l *pipeline) Close(ctx context.Context) error {
	var errs []error
	if l.stop != nil {
		l.stop()
		errs = append(errs, <-l.consumed)
	}
	if l.RelayFixture != nil {
		errs = append(errs, l.RelayFixture.Close(ctx))
	}
	if l.model != nil {
		errs = append(errs, l.model.Close())
	}
	return errors.Join(errs...)
}

// commit commits the creation of one more video.
func (l *pipeline) commit(ctx context.Context, i int) error {
	e, err := rig.VideoEvent(uuid.Must(uuid.NewV7()), 1)
	if err != nil {
		return err
	}
	return l.Relays.Commit(ctx, l.DB, i, e, func() { l.reach(atCommit, e.Key()) })
}

func (l *pipeline) acknowledged(m *pubsubpb.PubsubMessage) {
	l.reach(atPublish, eventing.Key("video", m.GetOrderingKey()))
}

// watched is a handler that records the moments of the events.
type watched struct {
	inbox.Handler

	pipeline *pipeline
}

func (w watched) Decode(e eventing.Event) (inbox.Change, error) {
	w.pipeline.reach(atReceipt, e.Key())
	return w.Handler.Decode(e)
}

func (w watched) Committed(ctx context.Context, moved ...consistency.Position) {
	for _, at := range moved {
		w.pipeline.reach(atVisible, at.Key())
	}
	w.Handler.Committed(ctx, moved...)
}

// reach records the time at which the events of these aggregates reach a moment.
func (l *pipeline) reach(moment int, keys ...string) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		e := l.seen[key]
		if e == nil {
			e = new([moments]time.Time)
			l.seen[key] = e
		}
		if e[moment].IsZero() {
			e[moment] = now
			if moment == atVisible {
				l.done++
			}
		}
	}
}

// latencies waits until all committed events are visible. It returns the time of each event, in
// total and by leg, and forgets the events.
func (l *pipeline) latencies(ctx context.Context) (whole []time.Duration, parts [moments - 1][]time.Duration, err error) {
	for {
		l.mu.Lock()
		if l.done == len(l.seen) {
			break
		}
		l.mu.Unlock()
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, parts, ctx.Err()
		}
	}
	l.mu.Unlock()
	defer l.forget() // no event is on its way
	for _, e := range l.seen {
		whole = append(whole, e[atVisible].Sub(e[atCommit]))
		for i := range parts {
			// The acknowledgement may arrive late, after the event itself.
			parts[i] = append(parts[i], max(0, e[i+1].Sub(e[i])))
		}
	}
	return whole, parts, nil
}

// whole is like latencies, but returns only the total times.
func (l *pipeline) whole(ctx context.Context) ([]time.Duration, error) {
	took, _, err := l.latencies(ctx)
	return took, err
}

func (l *pipeline) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.done = map[string]*[moments]time.Time{}, 0
}

package visible

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/load"
	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig/broker"
	"example.com/lockstep/lab/bench/rig/postgres"
	"example.com/lockstep/lab/bench/rig/readmodel"
	"example.com/lockstep/lab/bench/rig/relay"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/outbox"
)

// The moments of an event.
const (
	atCommit  = iota // the writer's commit has returned
	atPublish        // the broker has acknowledged
	atReceipt        // the client has delivered it
	atVisible        // the consumer's commit has returned
	moments
)

// legs are the intervals between them.
var legs = [moments - 1]string{"commit_to_publish", "publish_to_receive", "receive_to_visible"}

// way is the pair without its APIs: a writer's database with a relay, a broker,
// and a consumer with a database on another server.
type way struct {
	db   *pgxpool.Pool
	crew *relay.Crew

	mu   sync.Mutex
	seen map[string]*[moments]time.Time // by aggregate; each has one event
	done int                            // the visible ones among seen
}

// onTheWay measures while relay and consumer run.
func onTheWay(p *postgres.Server, once func(context.Context, *way, measure.Size) (measure.Reading, error)) measure.Run {
	return func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		s, err := readmodel.Start(ctx)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		w := new(way)
		w.forget()
		consume := func(ctx context.Context, o *relay.Outlet) error {
			c, err := inbox.NewConsumer(s.Pool, o.Client, broker.Subject, watched{s.Projector.Handler(), w},
				slog.New(slog.DiscardHandler), func() {}, inbox.Options{})
			if err != nil {
				return err
			}
			return c.Run(ctx)
		}
		one := relay.Relaying{Relays: 1, Acknowledged: w.acknowledged}
		return relay.WhileRelaying(ctx, p, one, func(ctx context.Context, st *relay.Stage) (_ measure.Reading, err error) {
			w.db, w.crew = st.DB, st.Crew
			w.forget() // events that the stage published before
			if err := broker.Subscribe(ctx, st.Outlet.Client, broker.Subject, true); err != nil {
				return measure.Reading{}, err
			}
			consuming, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- consume(consuming, st.Outlet) }()
			defer func() {
				stop()
				err = errors.Join(err, <-ended)
			}()
			if err := load.Flood(ctx, relay.Committers, time.Second/4, w.commit); err != nil { // connections prepare their statements
				return measure.Reading{}, err
			}
			if _, _, err := w.walked(ctx); err != nil {
				return measure.Reading{}, err
			}
			return once(ctx, w, size)
		})
	}
}

// commit commits the creation of one more video.
func (w *way) commit(ctx context.Context, _ int) error {
	e, err := readmodel.VideoEvent(uuid.Must(uuid.NewV7()), 1)
	if err != nil {
		return err
	}
	if err := pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, nil, e) }); err != nil {
		return err
	}
	w.pass(atCommit, e.Key())
	w.crew.Wake(0)
	return nil
}

func (w *way) acknowledged(m *pubsubpb.PubsubMessage) {
	w.pass(atPublish, eventing.Key("video", m.GetOrderingKey()))
}

// watched is a handler that records the moments.
type watched struct {
	inbox.Handler

	way *way
}

func (w watched) Decode(e eventing.Event) (inbox.Change, error) {
	w.way.pass(atReceipt, e.Key())
	return w.Handler.Decode(e)
}

func (w watched) Committed(keys ...string) {
	w.way.pass(atVisible, keys...)
	w.Handler.Committed(keys...)
}

// pass records the time at which these aggregates' events reach a moment.
func (w *way) pass(moment int, keys ...string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		e := w.seen[key]
		if e == nil {
			e = new([moments]time.Time)
			w.seen[key] = e
		}
		if e[moment].IsZero() {
			e[moment] = now
			if moment == atVisible {
				w.done++
			}
		}
	}
}

// walked waits until all committed events are visible, returns the time that
// each took, in total and by leg, and forgets them.
func (w *way) walked(ctx context.Context) (whole []time.Duration, parts [moments - 1][]time.Duration, err error) {
	for {
		w.mu.Lock()
		if w.done == len(w.seen) {
			break
		}
		w.mu.Unlock()
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, parts, ctx.Err()
		}
	}
	w.mu.Unlock()
	defer w.forget() // no event is on its way
	for _, e := range w.seen {
		whole = append(whole, e[atVisible].Sub(e[atCommit]))
		for i := range parts {
			// The acknowledgement may arrive late, after the event itself.
			parts[i] = append(parts[i], max(0, e[i+1].Sub(e[i])))
		}
	}
	return whole, parts, nil
}

func (w *way) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.done = map[string]*[moments]time.Time{}, 0
}

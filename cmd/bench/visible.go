package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/outbox"
)

// visibleLoad is events per second. It leaves the pair idle most of the time.
const visibleLoad = 100

// visibleVolume is how many events are timed, and how long a flood lasts.
var visibleVolumes = [...]struct {
	samples int
	flood   time.Duration
}{quick: {100, 200 * time.Millisecond}, normal: {1_500, 2 * time.Second}, full: {5_000, 5 * time.Second}}

// visibleSeries is the whole way of an event, from the end of the owner's commit
// to the end of the commit that makes readers see it.
func visibleSeries(p *postgres) []series {
	figures := []figure{{name: "visible.p50_ms", unit: "ms"}, {name: "visible.p99_ms", unit: "ms", note: "50 or less wanted"}}
	for _, leg := range legs {
		figures = append(figures, figure{name: "visible." + leg + "_p50_ms", unit: "ms"}, figure{name: "visible." + leg + "_p99_ms", unit: "ms"})
	}
	return []series{
		{
			title:        fmt.Sprintf("commit to visible at low load, %d events/s, ordered, local Pub/Sub", visibleLoad),
			measurements: []measurement{{figures, p.onTheWay(lowLoadWay)}},
		},
		{
			title: "commit to visible at half load",
			measurements: []measurement{{[]figure{
				{name: "visible.full_load", unit: "event/s", note: "one event a transaction; all of it on one machine"},
				{name: "visible.half_load_p50_ms", unit: "ms"}, {name: "visible.half_load_p99_ms", unit: "ms"},
			}, p.onTheWay(halfLoadWay)}},
		},
	}
}

func lowLoadWay(ctx context.Context, w *way, size size) (reading, error) {
	if _, err := paced(ctx, visibleLoad, visibleVolumes[size].samples, w.commit); err != nil {
		return reading{}, err
	}
	whole, parts, err := w.walked(ctx)
	if err != nil {
		return reading{}, err
	}
	values := bothPercentiles(whole)
	for _, part := range parts {
		values = append(values, bothPercentiles(part)...)
	}
	return reading{values, fmt.Sprintf("%d samples a run", len(whole))}, nil
}

func halfLoadWay(ctx context.Context, w *way, size size) (reading, error) {
	limit := visibleVolumes[size].flood
	start := time.Now()
	if err := flood(ctx, limit, w.commit); err != nil {
		return reading{}, err
	}
	whole, _, err := w.walked(ctx)
	if err != nil {
		return reading{}, err
	}
	rate := perSecond(len(whole), start)
	if _, err = paced(ctx, rate/2, int(rate/2*limit.Seconds()), w.commit); err != nil {
		return reading{}, err
	}
	if whole, _, err = w.walked(ctx); err != nil {
		return reading{}, err
	}
	return reading{append([]float64{rate}, bothPercentiles(whole)...), fmt.Sprintf("%d samples a run", len(whole))}, nil
}

// bothPercentiles are the 50th and the 99th, in milliseconds, never nothing.
func bothPercentiles(took []time.Duration) []float64 {
	slices.Sort(took)
	return []float64{
		milliseconds(max(percentile(took, 50), time.Microsecond)), milliseconds(max(percentile(took, 99), time.Microsecond)),
	}
}

// The moments of an event.
const (
	atCommit  = iota // the writer knows
	atPublish        // the broker has acknowledged
	atReceipt        // the client has handed it over
	atVisible        // the consumer's commit has returned
	moments
)

// legs are what lies between them.
var legs = [moments - 1]string{"commit_to_publish", "publish_to_receive", "receive_to_visible"}

// way is the pair without its APIs: a writer's database with a relay, a broker,
// and a consumer with a database on a server of its own.
type way struct {
	db   *pgxpool.Pool
	crew *crew

	mu   sync.Mutex
	seen map[string]*[moments]time.Time // by aggregate, of which each has one event
	done int                            // of seen, those that are visible
}

// onTheWay measures while relay and consumer run.
func (p *postgres) onTheWay(
	once func(context.Context, *way, size) (reading, error),
) func(context.Context, size) (reading, error) {
	return func(ctx context.Context, size size) (_ reading, err error) {
		s, err := newCatalogStore(ctx)
		if err != nil {
			return reading{}, err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		w := new(way)
		w.forget()
		consume := func(ctx context.Context, o *outlet) error {
			c, err := inbox.NewConsumer(s.pool, o.client, subject, w.watched(s.projector.Handler()),
				slog.New(slog.DiscardHandler), func() {})
			if err != nil {
				return err
			}
			return c.Run(ctx)
		}
		one := relaying{relays: 1, acknowledged: w.acknowledged}
		return p.whileRelaying(ctx, one, func(ctx context.Context, st *stage) (_ reading, err error) {
			w.db, w.crew = st.db, st.crew
			w.forget() // what the stage published before
			if err := st.outlet.subscribe(ctx); err != nil {
				return reading{}, err
			}
			consuming, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- consume(consuming, st.outlet) }()
			defer func() {
				stop()
				err = errors.Join(err, <-ended)
			}()
			if err := flood(ctx, time.Second/4, w.commit); err != nil { // connections prepare their statements
				return reading{}, err
			}
			if _, _, err := w.walked(ctx); err != nil {
				return reading{}, err
			}
			return once(ctx, w, size)
		})
	}
}

// commit commits the creation of one more video.
func (w *way) commit(ctx context.Context, _ int) error {
	e, err := videoEvent(uuid.Must(uuid.NewV7()), 1)
	if err != nil {
		return err
	}
	if err := pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, nil, e) }); err != nil {
		return err
	}
	w.pass(atCommit, e.Key())
	w.crew.relays[0].Wake()
	return nil
}

func (w *way) acknowledged(m *pubsubpb.PubsubMessage) {
	w.pass(atPublish, eventing.Key("video", m.GetOrderingKey()))
}

// watched is h, seen at its moments.
func (w *way) watched(h inbox.Handler) inbox.Handler {
	decode, tell := h.Decode, h.Committed
	h.Decode = func(e eventing.Event) (inbox.Change, error) {
		w.pass(atReceipt, e.Key())
		return decode(e)
	}
	h.Committed = func(keys ...string) {
		w.pass(atVisible, keys...)
		tell(keys...)
	}
	return h
}

// pass notes that these aggregates' events are there now.
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

// walked waits until all that was committed is visible, returns how long each
// event took, in all and by leg, and forgets them.
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
	defer w.forget() // nothing is under way
	for _, e := range w.seen {
		whole = append(whole, e[atVisible].Sub(e[atCommit]))
		for i := range parts {
			// An acknowledgement may be late to arrive, the event itself being there.
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

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

const (
	// lowLoad is events per second: a small part of what a core can do.
	lowLoad = 400
	// slices is how many parts a run has, so that the relay and the bare client
	// meet the same machine.
	slicesOfLatency = 10
	// latencyOfPublish is the broker's.
	latencyOfPublish = 5 * time.Millisecond
	// committers bounds transactions at a time.
	committers = 16
)

// outboxLatency is how long it takes from the end of a commit to the broker's
// acknowledgement.
func outboxLatency(p *postgres) []series {
	low := series{title: fmt.Sprintf("outbox: commit to publish at low load, %d events/s, a publish takes 5 ms", lowLoad), runs: 5}
	for _, relays := range []int{1, 4} {
		suffix := map[int]string{1: "", 4: "_4_relays"}[relays]
		low.measurements = append(low.measurements, p.lowLoad(relays, suffix))
		low.derived = append(low.derived, derived{
			figure:  figure{name: "relay.p99_over_publish_ms" + suffix, unit: "ms", note: "the difference of the two; 5 or less wanted"},
			ratioTo: "",
			from:    []string{"relay.low_load_p99_ms" + suffix, "relay.publish_p99_ms" + suffix},
			compute: func(in []float64) float64 { return in[0] - in[1] },
		})
	}
	half := series{title: "outbox: commit to publish at half load, a publish takes 5 ms", measurements: []measurement{p.halfLoad()}}
	return []series{low, half}
}

// lowLoad measures both in turns: events through the relay, and bare publishes.
func (p *postgres) lowLoad(relays int, suffix string) measurement {
	m := measurement{run: func(ctx context.Context, size size) (reading, error) {
		return p.whileRelaying(ctx, relaying{relays: relays, latency: latencyOfPublish}, func(ctx context.Context, s *stage) (reading, error) {
			n := outboxVolumes[size].samples / slicesOfLatency
			var bare, relayed []time.Duration
			for range slicesOfLatency {
				took, err := paced(ctx, lowLoad, n, s.publishOne)
				if err != nil {
					return reading{}, err
				}
				bare = append(bare, took...)
				if _, err = paced(ctx, lowLoad, n, s.commitOne); err != nil {
					return reading{}, err
				}
				if took, err = s.commitsToPublishes(ctx); err != nil {
					return reading{}, err
				}
				relayed = append(relayed, took...)
			}
			slices.Sort(bare)
			slices.Sort(relayed)
			return reading{[]float64{
				milliseconds(percentile(bare, 50)), milliseconds(percentile(bare, 99)),
				milliseconds(percentile(relayed, 50)), milliseconds(percentile(relayed, 99)),
			}, fmt.Sprintf("%d samples a run", len(relayed))}, nil
		})
	}}
	for _, name := range []string{"publish_p50_ms", "publish_p99_ms", "low_load_p50_ms", "low_load_p99_ms"} {
		m.figures = append(m.figures, figure{name: "relay." + name + suffix, unit: "ms"})
	}
	return m
}

// halfLoad first finds out what writers and one relay can do together.
func (p *postgres) halfLoad() measurement {
	return measurement{
		figures: []figure{
			{name: "relay.full_load", unit: "event/s", note: "one event a transaction, written and relayed on one machine"},
			{name: "relay.half_load_p50_ms", unit: "ms"}, {name: "relay.half_load_p99_ms", unit: "ms"},
		},
		run: func(ctx context.Context, size size) (reading, error) {
			return p.whileRelaying(ctx, relaying{relays: 1, latency: latencyOfPublish}, func(ctx context.Context, s *stage) (reading, error) {
				limit := outboxVolumes[size].writing
				full, err := s.flood(ctx, limit)
				if err != nil {
					return reading{}, err
				}
				if _, err = paced(ctx, full/2, int(full/2*limit.Seconds()), s.commitOne); err != nil {
					return reading{}, err
				}
				took, err := s.commitsToPublishes(ctx)
				if err != nil {
					return reading{}, err
				}
				slices.Sort(took)
				return reading{[]float64{full, milliseconds(percentile(took, 50)), milliseconds(percentile(took, 99))},
					fmt.Sprintf("%d samples a run", len(took))}, nil
			})
		},
	}
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// stage is a service under load: writers, and relays to a broker.
type stage struct {
	db     *pgxpool.Pool
	crew   *crew
	outlet *outlet

	mu        sync.Mutex
	committed map[string]time.Time // by aggregate, of which each has one event
	published map[string]time.Time
}

// relaying is how relays relay.
type relaying struct {
	relays       int
	latency      time.Duration                 // of a publish
	acknowledged func(*pubsubpb.PubsubMessage) // told as well as the stage; may be nil
}

// whileRelaying measures with relays at work.
func (p *postgres) whileRelaying(
	ctx context.Context, r relaying, once func(context.Context, *stage) (reading, error),
) (_ reading, err error) {
	d, err := p.fresh(ctx)
	if err != nil {
		return reading{}, err
	}
	defer func() { err = errors.Join(err, d.drop(ctx)) }()
	o, err := newOutlet(ctx, r.latency)
	if err != nil {
		return reading{}, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	s := &stage{outlet: o}
	s.forget()
	o.acknowledged = func(m *pubsubpb.PubsubMessage, at time.Time) {
		s.acknowledged(m, at)
		if r.acknowledged != nil {
			r.acknowledged(m)
		}
	}
	if s.db, err = d.pool(ctx, committers); err != nil {
		return reading{}, err
	}
	defer s.db.Close()
	if s.crew, err = newCrew(ctx, d, o, r.relays); err != nil {
		return reading{}, err
	}
	defer s.crew.close()
	s.crew.start(ctx)
	if _, err := s.flood(ctx, time.Second/4); err != nil { // connections prepare their statements
		return reading{}, err
	}
	return once(ctx, s)
}

func (s *stage) acknowledged(m *pubsubpb.PubsubMessage, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published[m.GetOrderingKey()] = at
}

func (s *stage) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed, s.published = map[string]time.Time{}, map[string]time.Time{}
}

// paced calls do n times at random moments, rate times a second, and returns how
// long each call took.
func paced(ctx context.Context, rate float64, n int, do func(context.Context, int) error) ([]time.Duration, error) {
	calls, ctx := errgroup.WithContext(ctx)
	took := make([]time.Duration, n)
	random := rand.New(rand.NewPCG(1, 2))
	next := time.Now()
	for i := range n {
		next = next.Add(time.Duration(random.ExpFloat64() * float64(time.Second) / rate))
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return nil, errors.Join(calls.Wait(), ctx.Err())
		}
		calls.Go(func() error {
			start := time.Now()
			err := do(ctx, i)
			took[i] = time.Since(start)
			return err
		})
	}
	return took, calls.Wait()
}

// publishOne publishes one message of a key of its own.
func (s *stage) publishOne(ctx context.Context, _ int) error {
	r := row{
		ID: uuid.Must(uuid.NewV7()), EventType: "VideoCreated", Version: 1, SchemaVersion: 1,
		Payload: body[:eventBytes], OccurredAt: time.Now(),
	}
	r.AggregateID = r.ID.String()
	return s.outlet.publish(ctx, r.message())
}

// commitOne commits one event of an aggregate of its own, and wakes the relay of
// the process that it stands for.
func (s *stage) commitOne(ctx context.Context, i int) error {
	e := videoCreated(uuid.Must(uuid.NewV7()), time.Now().UTC())
	if err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, nil, e) }); err != nil {
		return err
	}
	s.noteCommit(e)
	s.crew.relays[i%len(s.crew.relays)].Wake()
	return nil
}

func (s *stage) noteCommit(e eventing.Event) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed[e.AggregateID] = now
}

// commitsToPublishes waits until all that was committed is published, returns how
// long that took each, and forgets it. A relay may publish what is committed before
// the writer knows; that takes no time.
func (s *stage) commitsToPublishes(ctx context.Context) ([]time.Duration, error) {
	if err := s.crew.marked(ctx, anyXact); err != nil {
		return nil, err
	}
	defer s.forget()
	s.mu.Lock()
	defer s.mu.Unlock()
	took := make([]time.Duration, 0, len(s.committed))
	for id, at := range s.committed {
		published, ok := s.published[id]
		if !ok {
			return nil, fmt.Errorf("the event of %s is marked and not published", id)
		}
		took = append(took, max(0, published.Sub(at)))
	}
	return took, nil
}

// flood commits as fast as it goes for as long as limit says, and returns events
// per second, to the last one's mark.
func (s *stage) flood(ctx context.Context, limit time.Duration) (float64, error) {
	start := time.Now()
	if err := flood(ctx, limit, s.commitOne); err != nil {
		return 0, err
	}
	took, err := s.commitsToPublishes(ctx)
	return float64(len(took)) / time.Since(start).Seconds(), err
}

// flood has all committers commit, one after the other each, for as long as limit
// says.
func flood(ctx context.Context, limit time.Duration, commit func(context.Context, int) error) error {
	writing, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for w := range committers {
		writing.Go(func() error {
			for time.Since(start) < limit {
				if err := commit(ctx, w); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return writing.Wait()
}

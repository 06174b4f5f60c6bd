package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/cmd/bench/load"
	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/rig/broker"
	"example.com/lockstep/cmd/bench/rig/postgres"
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
func outboxLatency(p *postgres.Server) []measure.Series {
	low := measure.Series{Title: fmt.Sprintf("outbox: commit to publish at low load, %d events/s, a publish takes 5 ms", lowLoad), Runs: 5}
	for _, relays := range []int{1, 4} {
		suffix := map[int]string{1: "", 4: "_4_relays"}[relays]
		low.Measurements = append(low.Measurements, atLowLoad(p, relays, suffix))
		low.Derived = append(low.Derived, measure.Derived{
			Figure:  measure.Figure{Name: "relay.p99_over_publish_ms" + suffix, Unit: "ms", Note: "the difference of the two; 5 or less wanted"},
			RatioTo: "",
			From:    []string{"relay.low_load_p99_ms" + suffix, "relay.publish_p99_ms" + suffix},
			Compute: func(in []float64) float64 { return in[0] - in[1] },
		})
	}
	half := measure.Series{
		Title: "outbox: commit to publish at half load, a publish takes 5 ms", Measurements: []measure.Measurement{atHalfLoad(p)},
	}
	return []measure.Series{low, half}
}

// atLowLoad measures both in turns: events through the relay, and bare publishes.
func atLowLoad(p *postgres.Server, relays int, suffix string) measure.Measurement {
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (measure.Reading, error) {
		at := relaying{relays: relays, latency: latencyOfPublish}
		return whileRelaying(ctx, p, at, func(ctx context.Context, s *stage) (measure.Reading, error) {
			n := outboxVolumes[size].samples / slicesOfLatency
			var bare, relayed []time.Duration
			for range slicesOfLatency {
				took, err := load.Paced(ctx, lowLoad, n, s.publishOne)
				if err != nil {
					return measure.Reading{}, err
				}
				bare = append(bare, took...)
				if _, err = load.Paced(ctx, lowLoad, n, s.commitOne); err != nil {
					return measure.Reading{}, err
				}
				if took, err = s.commitsToPublishes(ctx); err != nil {
					return measure.Reading{}, err
				}
				relayed = append(relayed, took...)
			}
			values := append(measure.Percentiles(bare, 50, 99), measure.Percentiles(relayed, 50, 99)...)
			return measure.Reading{Values: values, Note: fmt.Sprintf("%d samples a run", len(relayed))}, nil
		})
	}}
	for _, name := range []string{"publish_p50_ms", "publish_p99_ms", "low_load_p50_ms", "low_load_p99_ms"} {
		m.Figures = append(m.Figures, measure.Figure{Name: "relay." + name + suffix, Unit: "ms"})
	}
	return m
}

// atHalfLoad first finds out what writers and one relay can do together.
func atHalfLoad(p *postgres.Server) measure.Measurement {
	return measure.Measurement{
		Figures: []measure.Figure{
			{Name: "relay.full_load", Unit: "event/s", Note: "one event a transaction, written and relayed on one machine"},
			{Name: "relay.half_load_p50_ms", Unit: "ms"}, {Name: "relay.half_load_p99_ms", Unit: "ms"},
		},
		Run: func(ctx context.Context, size measure.Size) (measure.Reading, error) {
			at := relaying{relays: 1, latency: latencyOfPublish}
			return whileRelaying(ctx, p, at, func(ctx context.Context, s *stage) (measure.Reading, error) {
				limit := outboxVolumes[size].writing
				full, err := s.flood(ctx, limit)
				if err != nil {
					return measure.Reading{}, err
				}
				if _, err = load.Paced(ctx, full/2, int(full/2*limit.Seconds()), s.commitOne); err != nil {
					return measure.Reading{}, err
				}
				took, err := s.commitsToPublishes(ctx)
				if err != nil {
					return measure.Reading{}, err
				}
				values := append([]float64{full}, measure.Percentiles(took, 50, 99)...)
				return measure.Reading{Values: values, Note: fmt.Sprintf("%d samples a run", len(took))}, nil
			})
		},
	}
}

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
func whileRelaying(
	ctx context.Context, p *postgres.Server, r relaying, once func(context.Context, *stage) (measure.Reading, error),
) (_ measure.Reading, err error) {
	d, err := p.Fresh(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, d.Drop(ctx)) }()
	o, err := newOutlet(ctx, r.latency)
	if err != nil {
		return measure.Reading{}, err
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
	if s.db, err = d.Pool(ctx, committers); err != nil {
		return measure.Reading{}, err
	}
	defer s.db.Close()
	if s.crew, err = newCrew(ctx, d, o, r.relays); err != nil {
		return measure.Reading{}, err
	}
	defer s.crew.close()
	s.crew.start(ctx)
	if _, err := s.flood(ctx, time.Second/4); err != nil { // connections prepare their statements
		return measure.Reading{}, err
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

// publishOne publishes one message of a key of its own.
func (s *stage) publishOne(ctx context.Context, _ int) error {
	r := row{
		ID: uuid.Must(uuid.NewV7()), EventType: "VideoCreated", Version: 1, SchemaVersion: 1,
		Payload: payload, OccurredAt: time.Now(),
	}
	r.AggregateID = r.ID.String()
	return broker.Publish(ctx, s.outlet.client, r.message())
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
	if err := load.Flood(ctx, committers, limit, s.commitOne); err != nil {
		return 0, err
	}
	took, err := s.commitsToPublishes(ctx)
	return measure.PerSecond(len(took), start), err
}

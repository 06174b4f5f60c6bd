package relay

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

	"example.com/lockstep/lab/bench/load"
	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig/postgres"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

// Committers bounds the concurrent transactions.
const Committers = 16

// Stage is a service under load: writers, and relays to a broker.
type Stage struct {
	DB     *pgxpool.Pool
	Crew   *Crew
	Outlet *Outlet

	mu        sync.Mutex
	committed map[string]time.Time // by aggregate, of which each has one event
	published map[string]time.Time
}

// Relaying configures the relays of a Stage.
type Relaying struct {
	Relays       int
	Latency      time.Duration                 // of a publish
	Acknowledged func(*pubsubpb.PubsubMessage) // called in addition to the stage; may be nil
}

// WhileRelaying measures while relays are running.
func WhileRelaying(
	ctx context.Context, p *postgres.Server, r Relaying, once func(context.Context, *Stage) (measure.Reading, error),
) (_ measure.Reading, err error) {
	d, err := p.Fresh(ctx)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, d.Drop(ctx)) }()
	o, err := Open(ctx, r.Latency)
	if err != nil {
		return measure.Reading{}, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	s := &Stage{Outlet: o}
	s.forget()
	o.acknowledged = func(m *pubsubpb.PubsubMessage, at time.Time) {
		s.acknowledged(m, at)
		if r.Acknowledged != nil {
			r.Acknowledged(m)
		}
	}
	if s.DB, err = d.Pool(ctx, Committers); err != nil {
		return measure.Reading{}, err
	}
	defer s.DB.Close()
	if s.Crew, err = NewCrew(ctx, d, o, r.Relays); err != nil {
		return measure.Reading{}, err
	}
	defer s.Crew.Close()
	s.Crew.Start(ctx)
	if _, err := s.Flood(ctx, time.Second/4); err != nil { // connections prepare their statements
		return measure.Reading{}, err
	}
	return once(ctx, s)
}

func (s *Stage) acknowledged(m *pubsubpb.PubsubMessage, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.published[m.GetOrderingKey()] = at
}

func (s *Stage) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed, s.published = map[string]time.Time{}, map[string]time.Time{}
}

// CommitOne commits one event of a new aggregate, and wakes the relay of the
// process that it stands for.
func (s *Stage) CommitOne(ctx context.Context, i int) error {
	e := VideoCreated(uuid.Must(uuid.NewV7()), time.Now().UTC())
	if err := pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error { return outbox.Append(ctx, tx, nil, e) }); err != nil {
		return err
	}
	s.noteCommit(e)
	s.Crew.Wake(i)
	return nil
}

func (s *Stage) noteCommit(e eventing.Event) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed[e.AggregateID] = now
}

// CommitsToPublishes waits until all committed events are published, returns
// the time that each took, and forgets them. If a relay publishes an event
// before the writer's commit returns, the time counts as zero.
func (s *Stage) CommitsToPublishes(ctx context.Context) ([]time.Duration, error) {
	if err := s.Crew.marked(ctx, AnyXact); err != nil {
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

// Flood commits as fast as possible until limit is over. It returns events per
// second, measured to the mark of the last event.
func (s *Stage) Flood(ctx context.Context, limit time.Duration) (float64, error) {
	start := time.Now()
	if err := load.Flood(ctx, Committers, limit, s.CommitOne); err != nil {
		return 0, err
	}
	took, err := s.CommitsToPublishes(ctx)
	return measure.PerSecond(len(took), start), err
}

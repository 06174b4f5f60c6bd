package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

// TestMain makes the test binary a process that its tests may kill.
func TestMain(m *testing.M) {
	if os.Getenv(victimDatabase) != "" {
		os.Exit(victim())
	}
	pgtest.Main(m)
}

const (
	subscription = "video.events.catalog"
	topic        = "projects/test/topics/video.events"
	deadTopic    = "projects/test/topics/" + subscription + ".dlq"
	// patience ends a test that would otherwise hang. It covers the minute for
	// which a message that is given back while its stream closes may stay leased.
	patience = 150 * time.Second
)

// bench is one inbox, one broker, and a read model with a version and a count of effects
// for each aggregate.
type bench struct {
	pg      *pgtest.DB
	db      *pgxpool.Pool
	server  *pstest.Server
	streams *Streams
	client  *pubsub.Client

	mu sync.Mutex
	// owner has the versions that Repair finds; an absent aggregate is an outage of the owner.
	owner map[string]int64
	// spoil makes Apply fail or panic for some events.
	spoil func(e eventing.Event) error
}

// newModel is a bench without a broker.
func newModel(t *testing.T, pg *pgtest.DB) *bench {
	t.Helper()
	_, err := pg.Pool(t, pg.Admin).Exec(t.Context(), `
		CREATE TABLE app.model (id text PRIMARY KEY, version bigint NOT NULL, effects int NOT NULL);
		GRANT SELECT, INSERT, UPDATE ON app.model TO app_service`)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{pg: pg, db: pg.Pool(t, pg.URL), owner: map[string]int64{}}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := newModel(t, pgtest.New(t))
	b.server, b.streams = pstest.NewServer(), NewStreams()
	t.Cleanup(func() { _ = b.server.Close() })
	conn, err := grpc.NewClient(b.server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()), b.streams.DialOption())
	if err != nil {
		t.Fatal(err)
	}
	b.client, err = pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.client.Close() })
	for _, name := range []string{topic, deadTopic} {
		if _, err := b.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	// Without ordering pstest delivers more than one message of a key at a time,
	// and in any order: the harder case.
	_, err = b.client.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
		Name: "projects/test/subscriptions/" + subscription, Topic: topic, AckDeadlineSeconds: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) apply(ctx context.Context, tx pgx.Tx, c Change) (Outcome, error) {
	e := c.Event
	b.mu.Lock()
	spoil := b.spoil
	b.mu.Unlock()
	if spoil != nil {
		if err := spoil(e); err != nil {
			return 0, err
		}
	}
	var version int64
	err := tx.QueryRow(ctx, `SELECT version FROM model WHERE id = $1 FOR UPDATE`, e.AggregateID).Scan(&version)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, err
	}
	switch {
	case e.Version <= version:
		return Stale, nil
	case e.Version > version+1:
		return Gap, nil
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO model VALUES ($1, $2, 1)
		ON CONFLICT (id) DO UPDATE SET version = $2, effects = model.effects + 1`, e.AggregateID, e.Version)
	return Applied, err
}

// functions is a Handler of functions, which tests replace.
type functions struct {
	decode    func(eventing.Event) (Change, error)
	apply     func(context.Context, pgx.Tx, []Change) ([]Outcome, error)
	repair    func(context.Context, eventing.Event) error
	committed func(keys ...string)
}

func (f *functions) Decode(e eventing.Event) (Change, error) { return f.decode(e) }

func (f *functions) Apply(ctx context.Context, tx pgx.Tx, changes []Change) ([]Outcome, error) {
	return f.apply(ctx, tx, changes)
}

func (f *functions) Repair(ctx context.Context, e eventing.Event) error { return f.repair(ctx, e) }

func (f *functions) Committed(_ context.Context, moved ...consistency.Position) {
	keys := make([]string, len(moved))
	for i, at := range moved {
		keys[i] = at.Key()
	}
	f.committed(keys...)
}

// each is an Apply that takes one change at a time.
func each(apply func(context.Context, pgx.Tx, Change) (Outcome, error)) func(context.Context, pgx.Tx, []Change) ([]Outcome, error) {
	return func(ctx context.Context, tx pgx.Tx, changes []Change) ([]Outcome, error) {
		return Each(ctx, tx, changes, apply)
	}
}

// handler is the handler of b's consumers.
func (b *bench) handler(decode func(eventing.Event) (Change, error)) *functions {
	return &functions{decode: decode, apply: each(b.apply), repair: b.repair, committed: func(...string) {}}
}

// functions are those of c's handler.
func (c *Consumer) functions() *functions { return c.handler.Handler.(*functions) }

func (b *bench) repair(ctx context.Context, e eventing.Event) error {
	b.mu.Lock()
	version, ok := b.owner[e.AggregateID]
	b.mu.Unlock()
	if !ok {
		return errors.New("owner is away")
	}
	_, err := b.db.Exec(ctx, `
		INSERT INTO model VALUES ($1, $2, 0)
		ON CONFLICT (id) DO UPDATE SET version = $2 WHERE model.version < $2`, e.AggregateID, version)
	return err
}

func (b *bench) consumer(t *testing.T) *Consumer {
	t.Helper()
	h := b.handler(decode)
	c := NewConsumer(b.db, b.client, subscription, h, slog.New(slog.DiscardHandler), func() {}, Options{})
	return c
}

// decode knows one type, and one schema.
func decode(e eventing.Event) (Change, error) {
	switch {
	case e.Type != "VideoUpdated":
		return Change{}, fmt.Errorf("event_type: %q: %w", e.Type, ErrUnknown)
	case e.SchemaVersion != 1:
		return Change{}, fmt.Errorf("schema_version: %d: %w", e.SchemaVersion, ErrUnknown)
	}
	return Change{Kind: Updated}, nil
}

// delivered is e as a message brings it.
func delivered(e eventing.Event) *delivery {
	return &delivery{change: Change{Event: e, Kind: Updated}, messages: []*pubsub.Message{{ID: "m", Attributes: e.Message().Attributes}}}
}

// finish applies batch, and the events of each aggregate that is unblocked, until none is
// blocked.
func (c *Consumer) finish(t *testing.T, batch ...*delivery) {
	t.Helper()
	c.process(t.Context(), mergeDuplicates(batch))
	for len(c.blocked.byKey) > 0 {
		select {
		case key := <-c.blocked.released:
			c.process(t.Context(), mergeDuplicates(c.blocked.unblock(key)))
		case <-time.After(patience):
			t.Fatal("blocked for ever")
		}
	}
}

// consume runs a consumer until the test ends.
func (b *bench) consume(t *testing.T) {
	t.Helper()
	c := b.consumer(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("consumer: %v", err)
		}
	})
}

func event(aggregate string, version int64) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: aggregate, Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.FirstEpoch, Payload: []byte("p"),
	}
}

func (b *bench) publish(t *testing.T, events ...eventing.Event) {
	t.Helper()
	for _, e := range events {
		m := e.Message()
		m.OrderingKey = "" // this subscription promises no order
		b.publishRaw(t, m)
	}
}

func (b *bench) publishRaw(t *testing.T, m *pubsubpb.PubsubMessage) {
	t.Helper()
	req := &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{m}}
	if _, err := b.client.TopicAdminClient.Publish(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// eventually polls the database until query answers want.
func (b *bench) eventually(t *testing.T, want int, query string, args ...any) {
	t.Helper()
	pgtest.Await(t, b.db, want, query, args...)
}

func (b *bench) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	return pgtest.Value[int](t, b.db, query, args...)
}

func (b *bench) setSpoil(f func(eventing.Event) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spoil = f
}

func (b *bench) setOwner(aggregate string, version int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.owner[aggregate] = version
}

// deadLettered is the dead letters with this event id (or any, when empty).
func (b *bench) deadLettered(eventID string) []*pstest.Message {
	var dead []*pstest.Message
	for _, m := range b.server.Messages() {
		if m.Topic == deadTopic && (eventID == "" || m.Attributes[eventing.AttrEventID] == eventID) {
			dead = append(dead, m)
		}
	}
	return dead
}

const (
	version  = `SELECT coalesce(max(version), 0) FROM model WHERE id = $1`
	effects  = `SELECT coalesce(max(effects), 0) FROM model WHERE id = $1`
	withDone = `SELECT count(*) FROM inbox WHERE status = 'done'`
)

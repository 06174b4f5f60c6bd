package deadletter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	project      = "test"
	subscription = "video.events.catalog"
)

var order = audit.Actor{By: "ada", Why: "the handler was fixed"}

// bench is an inbox with a handler that fails as the test says, a broker, and a
// read model that keeps each aggregate's version, its number of effects and
// their order.
type bench struct {
	db     *pgxpool.Pool
	client *pubsub.Client
	queue  *Queue

	mu sync.Mutex
	// spoil makes Apply fail, or panic, for some events.
	spoil func(e eventing.Event) error
	// owner is the owner's state for Repair.
	owner map[string]int64
	// asked is the event of the last Repair.
	asked eventing.Event
	// failing are the methods of the broker that answer UNAVAILABLE.
	failing map[string]bool
	// published counts the publishes of this process, and acknowledged the messages that it acknowledged.
	published, acknowledged int
	// committed are the aggregates of which waiting readers were told.
	committed []string
	// leases are the leases that this process has asked for last, by ack id, in seconds.
	leases map[string]int32
	// notReady is the number of pulls that the broker answers with no message, although it has some.
	notReady int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	pg := pgtest.New(t)
	b := &bench{db: pg.Pool(t, pg.URL), owner: map[string]int64{}, failing: map[string]bool{}, leases: map[string]int32{}}
	_, err := pg.Pool(t, pg.Admin).Exec(t.Context(), `
		CREATE TABLE app.model (id text PRIMARY KEY, version bigint NOT NULL, effects text NOT NULL);
		GRANT SELECT, INSERT, UPDATE ON app.model TO app_service`)
	if err != nil {
		t.Fatal(err)
	}
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if _, err := broker.Provision(t.Context(), server.Addr(), project); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(b.intercept))
	if err != nil {
		t.Fatal(err)
	}
	if b.client, err = pubsub.NewClient(t.Context(), project, option.WithGRPCConn(conn)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.client.Close() })
	b.queue = New(b.db, b.client, b.handler(), subscription)
	return b
}

func (b *bench) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	b.mu.Lock()
	fails := b.failing[method]
	empty := false
	switch req := req.(type) {
	case *pubsubpb.PublishRequest:
		b.published++
	case *pubsubpb.AcknowledgeRequest:
		b.acknowledged += len(req.GetAckIds())
	case *pubsubpb.ModifyAckDeadlineRequest:
		for _, id := range req.GetAckIds() {
			b.leases[id] = req.GetAckDeadlineSeconds()
		}
	case *pubsubpb.PullRequest:
		if empty = b.notReady > 0; empty {
			b.notReady--
		}
	}
	b.mu.Unlock()
	switch {
	case fails:
		return status.Error(codes.PermissionDenied, "not today")
	case empty:
		return nil // reply is empty
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (b *bench) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// handler applies events to the model of a bench.
type handler struct{ *bench }

func (b *bench) handler() inbox.Handler { return handler{b} }

func (handler) Decode(eventing.Event) (inbox.Change, error) { return inbox.Change{}, nil }

func (h handler) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	return inbox.Each(ctx, tx, changes, h.apply)
}

func (h handler) Repair(ctx context.Context, e eventing.Event) error {
	h.set(func() { h.asked = e })
	return h.repair(ctx, e)
}

func (h handler) Committed(_ context.Context, moved ...consistency.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range moved {
		if p == p.Unknown() { // a repair may have moved it further than the event
			h.committed = append(h.committed, p.AggregateID)
		}
	}
}

func (b *bench) apply(ctx context.Context, tx pgx.Tx, c inbox.Change) (inbox.Outcome, error) {
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
		return inbox.Stale, nil
	case e.Version > version+1:
		return inbox.Gap, nil
	}
	_, err = tx.Exec(ctx, `
		INSERT INTO model VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET version = excluded.version, effects = model.effects || excluded.effects`,
		e.AggregateID, e.Version, fmt.Sprint(e.Version))
	return inbox.Applied, err
}

func (b *bench) repair(ctx context.Context, e eventing.Event) error {
	b.mu.Lock()
	version, ok := b.owner[e.AggregateID]
	b.mu.Unlock()
	if !ok {
		return errors.New("owner is away")
	}
	_, err := b.db.Exec(ctx, `
		INSERT INTO model VALUES ($1, $2, 'r')
		ON CONFLICT (id) DO UPDATE SET version = $2, effects = model.effects || 'r' WHERE model.version < $2`, e.AggregateID, version)
	return err
}

func event(aggregate string, version int64) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: aggregate, Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.FirstEpoch, Payload: []byte("\x0a\x07payload"), // as the topic's schema requires
	}
}

func (b *bench) send(t *testing.T, topic string, messages ...*pubsubpb.PubsubMessage) {
	t.Helper()
	_, err := b.client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: "projects/" + project + "/topics/" + topic, Messages: messages,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// deadLetter lets a real consumer make dead letters of messages and events, and then
// removes the causes.
func (b *bench) deadLetter(t *testing.T, events ...eventing.Event) {
	t.Helper()
	b.set(func() {
		b.spoil = func(eventing.Event) error { return eventing.Permanent(errors.New("title is a teapot")) }
	})
	for _, e := range events {
		b.send(t, "video.events", e.Message())
	}
	c := inbox.NewConsumer(b.db, b.client, subscription, b.handler(), slog.New(slog.DiscardHandler), func() {}, inbox.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	b.eventually(t, len(events), `SELECT count(*) FROM inbox WHERE status = 'dead'`)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	b.set(func() { b.spoil, b.published = nil, 0 })
}

// collect returns an operator's view. It is given back when the test ends.
func (b *bench) collect(t *testing.T) *Batch {
	t.Helper()
	h, err := b.queue.Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.release(t, h) })
	return h
}

func (b *bench) release(t *testing.T, h *Batch) {
	t.Helper()
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func (b *bench) redriveAll(t *testing.T, h *Batch) (results []Result) {
	t.Helper()
	for _, l := range h.Letters {
		r, err := h.Redrive(t.Context(), order, l)
		if err != nil {
			t.Errorf("redrive version %d of %s: %v", l.Version, l.AggregateID, err)
		}
		results = append(results, r)
	}
	return results
}

func (b *bench) count(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	return pgtest.Value[int](t, b.db, query, args...)
}

func (b *bench) eventually(t *testing.T, want int, query string, args ...any) {
	t.Helper()
	pgtest.Await(t, b.db, want, query, args...)
}

func (b *bench) effects(t *testing.T, aggregate string) (effects string) {
	t.Helper()
	err := b.db.QueryRow(t.Context(), `SELECT coalesce(max(effects), '') FROM model WHERE id = $1`, aggregate).Scan(&effects)
	if err != nil {
		t.Fatal(err)
	}
	return effects
}

const (
	withStatus  = `SELECT count(*) FROM inbox WHERE status = $1`
	withAction  = `SELECT count(*) FROM operator_actions WHERE action = $1`
	acknowledge = "/google.pubsub.v1.Subscriber/Acknowledge"
	extend      = "/google.pubsub.v1.Subscriber/ModifyAckDeadline"
)

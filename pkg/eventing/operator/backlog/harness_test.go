package backlog

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const topic = "projects/test/topics/video.events"

var order = audit.Actor{By: "ada", Why: "the schema was fixed"}

// bench is one outbox and a broker that refuses the payload poison.
type bench struct {
	pg      *pgtest.DB
	db      *pgxpool.Pool
	backlog *Backlog
	server  *pstest.Server
	client  *pubsub.Client
	last    uuid.UUID // of parked

	mu     sync.Mutex
	poison string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	pg := pgtest.New(t)
	b := &bench{pg: pg, db: pg.Pool(t, pg.URL), server: pstest.NewServer()}
	b.backlog = New(b.db)
	t.Cleanup(func() { _ = b.server.Close() })
	conn, err := grpc.NewClient(b.server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(b.refuse))
	if err != nil {
		t.Fatal(err)
	}
	if b.client, err = pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.client.Close() })
	if _, err = b.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) refuse(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	b.mu.Lock()
	poison := b.poison
	b.mu.Unlock()
	if p, ok := req.(*pubsubpb.PublishRequest); ok && poison != "" {
		for _, m := range p.Messages {
			if bytes.Equal(m.Data, []byte(poison)) {
				return status.Error(codes.InvalidArgument, "the schema has no field 7")
			}
		}
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

func (b *bench) setPoison(payload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.poison = payload
}

// append commits versions 1 to n of an aggregate and returns their ids. The
// payload of version 2 of "a" is "a2".
func (b *bench) append(t *testing.T, aggregate string, n int) []uuid.UUID {
	t.Helper()
	var events []eventing.Event
	var ids []uuid.UUID
	for v := 1; v <= n; v++ {
		e := eventing.Event{
			ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: aggregate, Type: "VideoUpdated",
			Version: int64(v), SchemaVersion: 1, Payload: []byte(aggregate + strconv.Itoa(v)),
			OccurredAt: time.Now().UTC(), Epoch: eventing.FirstEpoch,
		}
		events, ids = append(events, e), append(ids, e.ID)
	}
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, nil, events...) })
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// relay runs n relays until the test ends.
func (b *bench) relay(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	for range n {
		r := outbox.NewRelay(b.db, b.client, map[string]string{"video": topic}, slog.New(slog.DiscardHandler), func() {}, outbox.Options{})
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Errorf("relay: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// park parks an event by hand, as if its last refusal had been an hour ago.
func (b *bench) park(t *testing.T, id uuid.UUID, reason string) {
	t.Helper()
	b.exec(t, `UPDATE outbox SET parked_at = now() - interval '1 hour', publish_attempts = 5, next_retry_at = now(), last_error = $2
		WHERE id = $1`, id, reason)
}

func (b *bench) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, b.db, sql, args...)
}

func (b *bench) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	return pgtest.Value[int](t, b.db, sql, args...)
}

// eventually polls until the query's count is want.
func (b *bench) eventually(t *testing.T, want int, sql string, args ...any) {
	t.Helper()
	pgtest.Await(t, b.db, want, sql, args...)
}

// sent returns an aggregate's versions in the order of their first arrival at
// the broker.
func (b *bench) sent(aggregate string) []string {
	messages := b.server.Messages()
	slices.SortStableFunc(messages, func(x, y *pstest.Message) int {
		nx, _ := strconv.Atoi(x.ID[1:])
		ny, _ := strconv.Atoi(y.ID[1:])
		return nx - ny
	})
	var versions []string
	for _, m := range messages {
		if v := m.Attributes[eventing.AttrVersion]; m.OrderingKey == aggregate && !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	return versions
}

// message returns the last message of an event that reached the broker.
func (b *bench) message(id uuid.UUID) (last *pstest.Message) {
	for _, m := range b.server.Messages() {
		if m.Attributes[eventing.AttrEventID] == id.String() {
			last = m
		}
	}
	return last
}

func upTo(n int) (versions []string) {
	for v := range n {
		versions = append(versions, fmt.Sprint(v+1))
	}
	return versions
}

const unpublished = `SELECT count(*) FROM outbox WHERE published_at IS NULL`

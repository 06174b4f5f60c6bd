package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// TestMain also is the relay that the history test runs in processes of its own.
func TestMain(m *testing.M) {
	if os.Getenv(childBroker) != "" {
		relayProcess()
		return
	}
	pgtest.Main(m)
}

const topic = "projects/test/topics/video.events"

// patience ends a test that would otherwise hang.
const patience = 2 * time.Minute

// bench is one outbox and one broker with a place to put faults.
type bench struct {
	db     *pgxpool.Pool
	server *pstest.Server
	// relayDB is the relays' connection, if that is not db.
	relayDB *pgxpool.Pool
	client  *pubsub.Client
	topics  map[string]string

	// since is the first transaction after those of publishedRows.
	since string

	mu sync.Mutex
	// fault stands between the relay and the broker; send lets the request
	// through.
	fault func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, pgtest.New(t))
}

func newBenchOn(t *testing.T, pg *pgtest.DB) *bench {
	t.Helper()
	b := &bench{db: pg.Pool(t, pg.URL), server: pstest.NewServer(), topics: map[string]string{"video": topic}}
	t.Cleanup(func() { _ = b.server.Close() })
	conn, err := grpc.NewClient(b.server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(b.intercept))
	if err != nil {
		t.Fatal(err)
	}
	b.client, err = pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.client.Close() })
	_, err = b.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) intercept(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	send := func(ctx context.Context) error { return invoke(ctx, method, req, reply, cc, opts...) }
	b.mu.Lock()
	fault := b.fault
	b.mu.Unlock()
	publish, ok := req.(*pubsubpb.PublishRequest)
	if !ok || fault == nil {
		return send(ctx)
	}
	return fault(ctx, publish, send)
}

func (b *bench) setFault(f func(context.Context, *pubsubpb.PublishRequest, func(context.Context) error) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = f
}

func event(aggregate string, version int64) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: aggregate, Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, Payload: []byte(strconv.FormatInt(version, 10)),
		OccurredAt: time.Now().UTC().Truncate(time.Microsecond), Epoch: eventing.FirstEpoch,
	}
}

// append commits versions from..to of an aggregate, each in a transaction.
func (b *bench) append(t *testing.T, aggregate string, from, to int64) {
	t.Helper()
	for v := from; v <= to; v++ {
		err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			return Append(t.Context(), tx, nil, event(aggregate, v))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// relay runs n relays until stop is called, which returns when they have ended.
func (b *bench) relay(t *testing.T, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	for range n {
		r := b.newRelay(t)
		running.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Errorf("relay: %v", err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// start runs one relay until the test ends.
func (b *bench) start(t *testing.T) *Relay {
	t.Helper()
	r := b.newRelay(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

func (b *bench) newRelay(t *testing.T) *Relay {
	t.Helper()
	return NewRelay(cmp.Or(b.relayDB, b.db), b.client, b.topics, slog.New(slog.DiscardHandler), func() {}, Options{})
}

// eventually polls the database until query answers want.
func (b *bench) eventually(t *testing.T, want int, query string) {
	t.Helper()
	pgtest.Await(t, b.db, want, query)
}

// poll asks until the answer is yes.
func (b *bench) poll(t *testing.T, yes func() bool, otherwise string) {
	t.Helper()
	pgtest.Until(t, otherwise, yes)
}

func (b *bench) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	return pgtest.Value[int](t, b.db, query, args...)
}

const (
	unpublished = `SELECT count(*) FROM outbox WHERE published_at IS NULL`
	leased      = `SELECT count(*) FROM outbox WHERE lock_token IS NOT NULL`
	attempted   = `SELECT coalesce(sum(publish_attempts), 0) FROM outbox`
)

// sent is the versions of an aggregate in the order in which the broker has
// them, repeats included.
func (b *bench) sent(aggregate string) []int64 {
	var versions []int64
	for _, m := range b.server.Messages() {
		if m.OrderingKey == aggregate {
			v, _ := strconv.ParseInt(m.Attributes[eventing.AttrVersion], 10, 64)
			versions = append(versions, v)
		}
	}
	return versions
}

// firstSightings fails the test unless each version was first sent after the
// one before it.
func firstSightings(t *testing.T, versions []int64, last int64) {
	t.Helper()
	if err := ordered(versions, last); err != nil {
		t.Errorf("%v in %v", err, versions)
	}
}

func ordered(versions []int64, last int64) error {
	var run []history.Record
	add := func(kind history.Kind, v int64) {
		run = append(run, history.Record{Kind: kind, Epoch: eventing.FirstEpoch, Version: v, Event: fmt.Sprint(v)})
	}
	for v := range last {
		add(history.Write, v+1)
	}
	for _, v := range versions {
		add(history.Publish, v)
	}
	if found := history.Check(run); len(found) > 0 {
		return errors.New(found[0].String())
	}
	return nil
}

func TestOrderedDetectsDisorder(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]int64{{2, 1, 2}, {1, 3, 2}, {1, 2}, {}} {
		if ordered(bad, 3) == nil {
			t.Errorf("%v passes", bad)
		}
	}
	if err := ordered([]int64{1, 2, 1, 2, 3, 3}, 3); err != nil {
		t.Errorf("repeats of old versions are allowed: %v", err)
	}
}

func (b *bench) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, b.db, sql, args...)
}

// claimAll has r claim, by one page of a scan, all that is pending.
func (b *bench) claimAll(t *testing.T, r *Relay, claimed chan<- *leasedBatch) {
	t.Helper()
	var c claimSchedule
	r.step(t.Context(), &c, claimed) // it joins the relays
	s := newScanSchedule()
	s.started(datedLow{snapshot: queue.Beginning})
	if !r.inFlight.reserve(byScan) {
		t.Fatal("no room for a claim")
	}
	if err := r.scan(t.Context(), s, actScanPage, claimed); err != nil {
		t.Fatal(err)
	}
}

// beat has r write a heartbeat.
func beat(t *testing.T, r *Relay) {
	t.Helper()
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}

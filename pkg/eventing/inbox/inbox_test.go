package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	subscription = "video.events.catalog"
	topic        = "projects/test/topics/video.events"
	deadTopic    = "projects/test/topics/" + subscription + ".dlq"
	// patience ends a test that would otherwise hang.
	patience = 60 * time.Second
)

// bench is one inbox, one broker, and a read model of three columns: the
// version of each aggregate and how many effects made it.
type bench struct {
	pg     *pgtest.DB
	db     *pgxpool.Pool
	server *pstest.Server
	client *pubsub.Client

	mu sync.Mutex
	// owner is what Repair finds; an absent aggregate is an outage of the owner.
	owner map[string]int64
	// spoil makes Apply fail or panic for some events.
	spoil func(e eventing.Event) error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	pg := pgtest.New(t)
	b := &bench{pg: pg, db: pg.Pool(t, pg.CatalogURL), server: pstest.NewServer(), owner: map[string]int64{}}
	t.Cleanup(func() { _ = b.server.Close() })
	_, err := pg.Pool(t, pg.Admin).Exec(t.Context(), `
		CREATE TABLE catalog.model (id text PRIMARY KEY, version bigint NOT NULL, effects int NOT NULL);
		GRANT SELECT, INSERT, UPDATE ON catalog.model TO catalog_service`)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(b.server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
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

func (b *bench) apply(ctx context.Context, tx pgx.Tx, e eventing.Event) (Outcome, error) {
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
	h := Handler{Apply: b.apply, Repair: b.repair, Committed: func(...string) {}}
	c, err := NewConsumer(b.db, b.client, subscription, h, slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// consume runs a consumer until stop is called, which returns when it has ended.
func (b *bench) consume(t *testing.T) (stop func()) {
	t.Helper()
	c := b.consumer(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("consumer: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func event(aggregate string, version int64) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: aggregate, Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.Epoch, Payload: []byte("p"),
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for got := -1; ; {
		// The database may be away on purpose: that is no answer yet.
		err := b.db.QueryRow(t.Context(), query, args...).Scan(&got)
		if err == nil && got == want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %d (%v), want %d", query, got, err, want)
		}
	}
}

func (b *bench) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	if err := b.db.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
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

func TestEachEffectOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setOwner("a", 10)
	b.consume(t)
	b.consume(t)
	for v := range int64(10) {
		e := event("a", v+1)
		b.publish(t, e, e, e)
		b.eventually(t, int(v)+1, version, "a")
	}
	b.eventually(t, 10, withDone)
	if n := b.count(t, effects, "a"); n != 10 {
		t.Errorf("%d effects of 10 events", n)
	}
}

func TestRedeliveryAfterCommitHasNoEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	e := event("a", 1)
	calls := 0
	b.setSpoil(func(eventing.Event) error { calls++; return nil })
	for range 3 {
		if left := c.apply(t.Context(), []*delivery{{event: e, messages: []*pubsub.Message{{}}}}); len(left) != 0 {
			t.Fatal("not settled")
		}
	}
	if n := b.count(t, effects, "a"); n != 1 || calls != 1 {
		t.Errorf("%d effects in %d calls of the handler, want 1 in 1", n, calls)
	}
	// Even without its inbox row, as after a purge, the version stops it.
	if _, err := b.pg.Pool(t, b.pg.Admin).Exec(t.Context(), `DELETE FROM catalog.inbox`); err != nil {
		t.Fatal(err)
	}
	c.apply(t.Context(), []*delivery{{event: e, messages: []*pubsub.Message{{}}}})
	if n := b.count(t, effects, "a"); n != 1 {
		t.Errorf("%d effects after a purge, want 1", n)
	}
}

func TestGapIsRepairedFromTheOwner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.consume(t)
	b.publish(t, event("a", 1))
	b.eventually(t, 1, version, "a")
	third, fourth := event("a", 3), event("a", 4)
	b.publish(t, third, fourth, event("b", 1))
	// The owner is away: the gap is held, the rest goes on, nothing is skipped.
	b.eventually(t, 1, version, "b")
	b.eventually(t, 1, `SELECT count(*) FROM inbox WHERE status = 'held' AND event_id = $1`, third.ID)
	if n := b.count(t, version, "a"); n != 1 {
		t.Errorf("version %d across a gap, want 1", n)
	}
	b.setOwner("a", 3)
	b.eventually(t, 4, version, "a")
	b.eventually(t, 4, withDone)
	if n := b.count(t, `SELECT coalesce(sum(attempts), 0) FROM inbox`); n != 0 {
		t.Errorf("an absent owner spent %d attempts", n)
	}
}

func TestPoisonGoesToTheDeadLettersAndTheRestFlows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bad := event("bad", 1)
	b.setSpoil(func(e eventing.Event) error {
		if e.ID == bad.ID {
			return eventing.Permanent(errors.New("title is a teapot"))
		}
		return nil
	})
	var batch []*delivery
	for i := range 20 {
		batch = append(batch, &delivery{event: event(fmt.Sprint("good", i), 1), messages: []*pubsub.Message{{}}})
	}
	batch = append(batch, &delivery{event: bad, messages: []*pubsub.Message{{Attributes: bad.Message().Attributes}}})
	b.consumer(t).apply(t.Context(), fold(batch))
	if n := b.count(t, withDone); n != 20 {
		t.Errorf("%d of 20 good events are done", n)
	}
	dead := b.deadLettered(bad.ID.String())
	if len(dead) != 1 || !strings.Contains(dead[0].Attributes[AttrDeadLetterReason], "teapot") {
		t.Fatalf("dead letters %v, want one with its reason", dead)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = 'dead' AND event_id = $1 AND last_error LIKE '%teapot%'`, bad.ID); n != 1 {
		t.Error("the inbox row does not say why")
	}
	// A dead event is no duplicate: once the cause is mended it can be applied.
	b.setSpoil(nil)
	b.consumer(t).apply(t.Context(), []*delivery{{event: bad, messages: []*pubsub.Message{{}}}})
	if n := b.count(t, effects, "bad"); n != 1 {
		t.Error("redriven event has no effect")
	}
}

func TestFailuresAndPanicsAreTriedAgainThenBuried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	failing, panicking := event("failing", 1), event("panicking", 1)
	b.setSpoil(func(e eventing.Event) error {
		switch e.ID {
		case failing.ID:
			return errors.New("not today")
		case panicking.ID:
			panic("handler bug")
		}
		return nil
	})
	b.consume(t)
	b.publish(t, failing, panicking, event("good", 1))
	b.eventually(t, 1, version, "good")
	b.eventually(t, 2, `SELECT count(*) FROM inbox WHERE status = 'dead' AND attempts = $1`, maxAttempts)
	for _, e := range []eventing.Event{failing, panicking} {
		dead := b.deadLettered(e.ID.String())
		if len(dead) != 1 || dead[0].Attributes[AttrDeadLetterAttempts] != fmt.Sprint(maxAttempts) {
			t.Errorf("dead letters of %s: %v, want one after %d attempts", e.AggregateID, dead, maxAttempts)
		}
	}
}

func TestWhatIsNoEventIsBuried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.consume(t)
	b.publishRaw(t, &pubsubpb.PubsubMessage{Data: []byte("hello")})
	mismatch := event("a", 1).Message()
	mismatch.OrderingKey = "another"
	b.publishRaw(t, mismatch)
	b.publish(t, event("good", 1))
	b.eventually(t, 1, version, "good")
	b.eventually(t, 1, `SELECT count(*) FROM inbox WHERE status = 'dead' AND last_error LIKE '%ordering key%'`)
	reasons := ""
	for _, m := range b.deadLettered("") {
		reasons += m.Attributes[AttrDeadLetterReason] + "\n"
	}
	if !strings.Contains(reasons, eventing.AttrEventID) {
		t.Errorf("reasons of the dead letters:\n%swant one that names the missing attribute", reasons)
	}
}

func TestOutageOfTheDatabaseIsWaitedOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setOwner("a", 40)
	// Every tenth event loses its connection in the middle of its transaction.
	broken := map[int64]bool{}
	b.setSpoil(func(e eventing.Event) error {
		if e.Version%10 == 0 && !broken[e.Version] {
			broken[e.Version] = true
			b.pg.Terminate(t)
		}
		return nil
	})
	b.consume(t)
	for v := int64(1); v <= 40; v++ {
		b.publish(t, event("a", v))
	}
	b.eventually(t, 40, version, "a")
	b.eventually(t, 40, withDone)
	b.eventually(t, 0, `SELECT coalesce(sum(attempts), 0) FROM inbox`)
	if dead := b.deadLettered(""); len(dead) != 0 {
		t.Errorf("%d dead letters from an outage", len(dead))
	}
}

// TestOppositeOrdersDoNotDeadlock feeds two consumers the same rows in opposite
// orders, many times.
func TestOppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, two := b.consumer(t), b.consumer(t)
	for round := range int64(30) {
		forth, back := make([]*delivery, 8), make([]*delivery, 8)
		for i := range forth {
			e := event(fmt.Sprint("a", i), round+1)
			forth[i] = &delivery{event: e, messages: []*pubsub.Message{{}}}
			back[len(back)-1-i] = &delivery{event: e, messages: []*pubsub.Message{{}}}
		}
		var both sync.WaitGroup
		for c, batch := range map[*Consumer][]*delivery{one: forth, two: back} {
			both.Go(func() {
				if _, err := c.try(t.Context(), fold(batch)); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		both.Wait()
	}
	if n := b.count(t, `SELECT count(*) FROM model WHERE version = 30 AND effects = 30`); n != 8 {
		t.Errorf("%d of 8 aggregates have each effect once", n)
	}
}

func TestShutdownGivesBackWhatItHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stop := b.consume(t)
	b.publish(t, event("a", 1), event("a", 3))
	b.eventually(t, 1, `SELECT count(*) FROM inbox WHERE status = 'held'`)
	stop()
	b.setOwner("a", 3)
	b.consume(t)
	b.eventually(t, 3, version, "a")
	b.eventually(t, 2, withDone)
}

func TestFold(t *testing.T) {
	t.Parallel()
	a1, a2, b1 := event("a", 1), event("a", 2), event("b", 1)
	one := func(e eventing.Event) *delivery {
		return &delivery{event: e, messages: []*pubsub.Message{{}}}
	}
	got := fold([]*delivery{one(b1), one(a2), one(a1), one(a2)})
	if len(got) != 3 || got[0].event.ID != a1.ID || got[1].event.ID != a2.ID || got[2].event.ID != b1.ID {
		t.Fatalf("order is not (aggregate, version)")
	}
	if len(got[1].messages) != 2 {
		t.Errorf("two deliveries of one event: %d messages to ack, want 2", len(got[1].messages))
	}
	invalid := func() *delivery {
		return &delivery{invalid: errKeyMismatch, messages: []*pubsub.Message{{}}}
	}
	if got := fold([]*delivery{invalid(), invalid()}); len(got) != 2 {
		t.Errorf("two messages that are no events became %d", len(got))
	}
}

package migrate_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A service that no package here knows includes the library's migrations, appends in
// its own transaction, and relays. It can touch its own schema only.
func TestMigrationsForAnotherService(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	if err := orders.Up(t.Context(), pg.Admin, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	db := pg.Pool(t, pg.As(t, orders.Role))
	if err := orders.Check(t.Context(), db); err != nil {
		t.Error(err)
	}
	_, err := db.Exec(t.Context(), `SELECT FROM app.outbox`)
	if denied, ok := errors.AsType[*pgconn.PgError](err); !ok || denied.Code != "42501" {
		t.Errorf("it reads the outbox of another service: %v", err)
	}
	placed := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: "order-1", Type: "OrderPlaced", Payload: []byte("one"),
		Version: 1, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: time.Now().UTC(),
	}
	err = pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		rows := &pgx.Batch{}
		rows.Queue(`INSERT INTO orders (id, version) VALUES ('order-1', 1)`)
		return outbox.Append(t.Context(), tx, rows, placed)
	})
	if err != nil {
		t.Fatal(err)
	}

	broker := pstest.NewServer()
	t.Cleanup(func() { _ = broker.Close() })
	conn, err := grpc.NewClient(broker.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	topic, err := client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: "projects/test/topics/order.events"})
	if err != nil {
		t.Fatal(err)
	}
	relay := outbox.NewRelay(db, client, map[string]string{"order": topic.GetName()}, slog.New(slog.DiscardHandler), func() {}, outbox.Options{})
	relaying, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(relaying) }()
	for published := false; !published; {
		err := db.QueryRow(relaying, `SELECT published_at IS NOT NULL FROM outbox WHERE id = $1`, placed.ID).Scan(&published)
		if err != nil {
			t.Fatal(err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	messages := broker.Messages()
	if len(messages) != 1 || string(messages[0].Data) != "one" || messages[0].OrderingKey != "order-1" {
		t.Errorf("the broker has %v", messages)
	}
}

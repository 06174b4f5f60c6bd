package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/local/variables"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// TestMain starts one broker for all tests, which the commands find like any
// emulator; each test has a project of its own.
func TestMain(m *testing.M) {
	variables.Forget()
	server, err := localpubsub.Start(localpubsub.Options{})
	if err == nil {
		err = os.Setenv("PUBSUB_EMULATOR_HOST", server.Addr())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer server.Close()
	pairtest.Main(m)
}

var subscription = topics.Subscription(topics.Video, topics.Catalog)

// otherSubscription is of a topic that no service of the pair has.
const otherSubscription = "other.events.catalog"

// bench is the two databases and a project.
type bench struct {
	pg             *pairtest.DB
	video, catalog *pgxpool.Pool
	project        string
	// broken makes the handler refuse every event.
	broken atomic.Bool
	// ownerAway makes every repair fail.
	ownerAway atomic.Bool
}

func newBench(t *testing.T) *bench {
	t.Helper()
	pg := pairtest.New(t)
	b := &bench{
		pg: pg, video: pg.Pool(t, pg.VideoURL), catalog: pg.Pool(t, pg.CatalogURL),
		project: "test-" + uuid.NewString()[:8],
	}
	if _, err := broker.Provision(t.Context(), os.Getenv("PUBSUB_EMULATOR_HOST"), b.project); err != nil {
		t.Fatal(err)
	}
	b.provision(t, otherSubscription, topics.DeadLetters(otherSubscription))
	return b
}

// provision makes subscriptions, each with a topic of its name.
func (b *bench) provision(t *testing.T, subscriptions ...string) {
	t.Helper()
	client, err := connect.NewPubSub(t.Context(), b.project, connect.PubSubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, name := range subscriptions {
		topic := topics.InProject(b.project, name)
		if _, err := client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
			t.Fatal(err)
		}
		_, err := client.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
			Name: "projects/" + b.project + "/subscriptions/" + name, Topic: topic, EnableMessageOrdering: true,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// handler has an effect that can be counted: the version in the projection.
type handler struct{ *bench }

func (handler) Decode(eventing.Event) (inbox.Change, error) { return inbox.Change{}, nil }

func (h handler) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	return inbox.Each(ctx, tx, changes, h.apply)
}

func (h handler) apply(ctx context.Context, tx pgx.Tx, c inbox.Change) (inbox.Outcome, error) {
	if h.broken.Load() {
		return 0, errors.New("still a teapot")
	}
	_, err := tx.Exec(ctx, `
		INSERT INTO video_projection (video_id, version, updated_at) VALUES ($1, $2, now())
		ON CONFLICT (video_id) DO UPDATE SET version = excluded.version`, c.Event.AggregateID, c.Event.Version)
	return inbox.Applied, err
}

func (h handler) Repair(context.Context, eventing.Event) error {
	if h.ownerAway.Load() {
		return errors.New("the owner is away")
	}
	return nil // the owner has no newer state
}

func (handler) Committed(context.Context, ...consistency.Position) {}

func topicsIn(project string) map[string]string {
	return map[string]string{"video": topics.InProject(project, topics.Video)}
}

func (b *bench) getenv(service string) func(string) string {
	url := map[string]string{"video": b.pg.VideoURL, "catalog": b.pg.CatalogURL}[service]
	return func(name string) string {
		return map[string]string{
			"DATABASE_URL": url, "GOOGLE_CLOUD_PROJECT": b.project, "OWNER_ADDR": "127.0.0.1:1", "USER": "ada",
		}[name]
	}
}

func (b *bench) service(name string) command.Service {
	return command.Service{Name: "video", Tools: map[string][]command.Tool{
		"video": Owner{Topics: topicsIn, Types: []string{"video", "twin", "pair"}, Rows: rowsIn}.Tools(), "catalog": b.readModel().Tools(),
	}[name]}
}

func (b *bench) readModel(fillers ...backfill.Filler) ReadModel {
	return ReadModel{
		Subscriptions: []string{subscription, otherSubscription}, OwnerVariable: "OWNER_ADDR", Positions: videosAt,
		Offsets:     offsetNames,
		Projections: func(*pgxpool.Pool, *grpc.ClientConn) Projections { return projections{b, fillers} },
	}
}

// projections are a handler with an effect that can be counted, and fillers.
type projections struct {
	*bench
	fillers []backfill.Filler
}

func (p projections) Handler() inbox.Handler     { return handler{p.bench} }
func (projections) Checks() []reconcile.Checker  { return nil }
func (p projections) Fillers() []backfill.Filler { return p.fillers }

// videosAt are the positions of the videos that handler has seen.
func videosAt(ctx context.Context, db *pgxpool.Pool, wanted []consistency.Position) (found []consistency.Position, err error) {
	for _, p := range wanted {
		err = errors.Join(err, db.QueryRow(ctx, projected, p.AggregateID).Scan(&p.Version))
		found = append(found, p)
	}
	return found, err
}

// run runs a command line such as "outbox status" and returns its output.
func (b *bench) run(t *testing.T, wantCode int, line string) (stdout, stderr string) {
	t.Helper()
	args := strings.Fields(line)
	name := map[string]string{"outbox": "video", "epoch": "video", "dlq": "catalog", "offset": "catalog"}[args[0]]
	if name == "" { // a tool that both have follows the service's name
		name, args = args[0], args[1:]
	}
	var out, errOut bytes.Buffer
	if code := b.service(name).Run(t.Context(), args, b.getenv(name), &out, &errOut); code != wantCode {
		t.Errorf("%s: code %d, want %d\nstdout %s\nstderr %s", line, code, wantCode, out.String(), errOut.String())
	}
	return out.String(), errOut.String()
}

// json runs a command line with --json and decodes the one object that it must
// print into v.
func (b *bench) json(t *testing.T, wantCode int, line string, v any) {
	t.Helper()
	stdout, _ := b.run(t, wantCode, line+" --json")
	reflect.ValueOf(v).Elem().SetZero() // it may hold an earlier answer
	d := json.NewDecoder(strings.NewReader(stdout))
	if err := d.Decode(v); err != nil || d.More() {
		t.Fatalf("%s: %v, more: %t in %s", line, err, d.More(), stdout)
	}
}

// payload is an event that satisfies the topic's schema.
const payload = "\x0a\x07payload"

func event(aggregate string, version int64) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: aggregate, Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.FirstEpoch, Payload: []byte(payload),
	}
}

// append commits versions 1 to n of an aggregate and returns their ids.
func (b *bench) append(t *testing.T, aggregate string, n int64) (ids []uuid.UUID) {
	t.Helper()
	var events []eventing.Event
	for v := range n {
		e := event(aggregate, v+1)
		events, ids = append(events, e), append(ids, e.ID)
	}
	err := pgx.BeginFunc(t.Context(), b.video, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, nil, events...) })
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func (b *bench) park(t *testing.T, id uuid.UUID, reason string) {
	t.Helper()
	_, err := b.video.Exec(t.Context(), `
		UPDATE outbox SET parked_at = now() - interval '1 hour', publish_attempts = 5, last_error = $2 WHERE id = $1`, id, reason)
	if err != nil {
		t.Fatal(err)
	}
}

// deadLetter leaves a dead letter for each event, as a consumer does.
func (b *bench) deadLetter(t *testing.T, reason string, events ...eventing.Event) {
	t.Helper()
	b.deadLetterIn(t, subscription, reason, events...)
}

func (b *bench) deadLetterIn(t *testing.T, subscription, reason string, events ...eventing.Event) {
	t.Helper()
	client, err := connect.NewPubSub(t.Context(), b.project, connect.PubSubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, e := range events {
		m := e.Message()
		m.Attributes[inbox.AttrDeadLetterReason], m.Attributes[inbox.AttrDeadLetterAttempts] = reason, "5"
		_, err := client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
			Topic: "projects/" + b.project + "/topics/" + subscription + ".dlq", Messages: []*pubsubpb.PubsubMessage{m},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.catalog.Exec(t.Context(), `
			INSERT INTO inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status, attempts, last_error)
			VALUES ($1, $2, $3, $4, $5, $6, 'm', now(), 'dead', 5, $7)`,
			subscription, e.ID, e.Type, e.AggregateType, e.AggregateID, e.Version, reason)
		if err != nil {
			t.Fatal(err)
		}
	}
}

func count(t *testing.T, db *pgxpool.Pool, query string, args ...any) (n int) {
	t.Helper()
	return pgtest.Value[int](t, db, query, args...)
}

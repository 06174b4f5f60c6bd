package guide_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/cmd/fork/guide"
	"example.com/lockstep/pkg/eventing"
)

// existing is the chapter of the library alone.
const existing = "docs/library.md"

// TestAnExistingService follows that chapter in a copy of the repository, and rolls both services out next to the
// programs from before.
//
// Each change of an order prints one label, in the order of the changes. orders is killed with events that are
// committed and not published, and with events that are published and not marked. shipping is killed, too.
func TestAnExistingService(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles the library for another module")
	}
	root, tools := repository(t)
	chapter, err := guide.ReadChapter(root, existing)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("a fork: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := copied(t, root, tools)
	before := build(t, c.dir)
	s := newShop(t)
	s.command(t, before, "orders", "migrate")
	s.command(t, before, "shipping", "migrate")
	old := s.start(t, before, "orders")
	changed, untouched := s.place(t), s.place(t)
	// By a clerk.
	if _, err := s.shipping.Exec(t.Context(), `INSERT INTO parcels (order_id, item, quantity) VALUES ($1, 'chair', 1)`, changed); err != nil {
		t.Fatal(err)
	}

	c.follow(t, chapter)
	after := build(t, c.dir)
	s.startBroker(t, c.dir)
	s.checkSubscription(t)
	s.command(t, after, "orders", "migrate")
	during := s.place(t) // by the old program
	end(t, old, syscall.SIGTERM)
	orders := s.start(t, after, "orders")
	s.command(t, after, "shipping", "migrate")
	shipping := s.start(t, after, "shipping")
	s.change(t, changed, 2, 3)
	s.labels(t, changed, 2, 3)

	s.command(t, after, "orders", "announce")
	s.labels(t, changed, 2, 3, 3)
	s.labels(t, untouched, 1)
	s.labels(t, during, 1)

	// Between the commit and the publish.
	placed := s.place(t)
	s.labels(t, placed, 1)
	s.fault(t, `{"faults": [{"kind": "outage", "method": "Publish"}]}`)
	s.change(t, placed, 2, 5)
	end(t, orders, syscall.SIGKILL)
	s.fault(t, `{}`)
	s.labels(t, placed, 1)
	orders = s.start(t, after, "orders")
	s.labels(t, placed, 1, 2, 3, 4, 5)

	// Between the publish and its mark.
	s.fault(t, `{"faults": [{"kind": "answer_lost", "method": "Publish"}]}`)
	s.change(t, placed, 6, 6)
	s.labels(t, placed, 1, 2, 3, 4, 5, 6)
	end(t, orders, syscall.SIGKILL)
	s.fault(t, `{}`)
	orders = s.start(t, after, "orders")
	s.change(t, placed, 7, 8)
	s.labels(t, placed, 1, 2, 3, 4, 5, 6, 7, 8)
	s.awaitDuplicate(t)
	end(t, shipping, syscall.SIGKILL)
	s.change(t, placed, 9, 10)
	s.advance(t, "1m") // the leases of the killed process end
	shipping = s.start(t, after, "shipping")
	s.labels(t, placed, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)

	s.giveUpLostWrite(t, untouched)
	s.labels(t, untouched, 1, 1)
	s.giveUpUnknownOrder(t)

	s.checkMetrics(t, c.dir)
	s.checkDatabase(t)
	s.change(t, placed, 11, 11)
	end(t, orders, syscall.SIGTERM)
	s.start(t, after, "orders") // its relay sends what the last one has not
	s.labels(t, placed, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	end(t, shipping, syscall.SIGTERM)
}

// giveUpLostWrite begins an epoch of orders, as after a restore. Then the marker of an event arrives that an operator had given
// up, and whose version the restore has lost.
func (s *shop) giveUpLostWrite(t *testing.T, order int64) {
	t.Helper()
	if _, err := s.orders.Exec(t.Context(), `INSERT INTO events.outbox_epochs (epoch, actor, why) VALUES (2, 'ada', 'a restore')`); err != nil {
		t.Fatal(err)
	}
	s.publishMarker(t, order, time.Now())
}

// giveUpUnknownOrder has the marker of an event arrive whose order does not exist. It is older than the time for which the answer of
// orders may be from before it, so it becomes a dead letter.
func (s *shop) giveUpUnknownOrder(t *testing.T) {
	t.Helper()
	const unknown = 999_999
	s.publishMarker(t, unknown, time.Now().Add(-time.Minute))
	await(t, "the dead letter of an unknown order", func() (dead bool) {
		err := s.shipping.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM events.inbox WHERE aggregate_id = $1::text AND status = 'dead')`,
			strconv.Itoa(unknown)).Scan(&dead)
		if err != nil {
			t.Fatal(err)
		}
		return dead
	})
}

// publishMarker publishes the marker of an event of an order.
func (s *shop) publishMarker(t *testing.T, order int64, at time.Time) {
	t.Helper()
	marker := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "order", AggregateID: strconv.FormatInt(order, 10), Type: eventing.Skipped,
		Version: 99, SchemaVersion: 1, Epoch: eventing.FirstEpoch, OccurredAt: at.UTC(),
	}
	_, err := s.client(t).TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: "projects/shop/topics/order.events", Messages: []*pubsubpb.PubsubMessage{marker.Message()},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *shop) client(t *testing.T) *pubsub.Client {
	t.Helper()
	client, err := pubsub.NewClient(t.Context(), "shop", option.WithEndpoint(s.broker), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// checkSubscription compares the subscription of the events with the settings that the chapter asks for. Without ordering the local
// Pub/Sub still delivers most messages in their order, so that the labels alone would not show that it is missing.
func (s *shop) checkSubscription(t *testing.T) {
	t.Helper()
	got, err := s.client(t).SubscriptionAdminClient.GetSubscription(t.Context(),
		&pubsubpb.GetSubscriptionRequest{Subscription: "projects/shop/subscriptions/order.events.shipping"})
	if err != nil {
		t.Fatal(err)
	}
	if !got.GetEnableMessageOrdering() || got.GetEnableExactlyOnceDelivery() || got.GetFilter() != "" || got.GetDeadLetterPolicy() != nil ||
		got.GetPushConfig().GetPushEndpoint() != "" || got.GetMessageRetentionDuration().AsDuration() != 7*24*time.Hour ||
		got.GetRetryPolicy().GetMinimumBackoff().AsDuration() != time.Second ||
		got.GetRetryPolicy().GetMaximumBackoff().AsDuration() != time.Minute {
		t.Fatalf("the subscription of the chapter: %v", got)
	}
}

// fault sets the faults of the local Pub/Sub.
func (s *shop) fault(t *testing.T, plan string) {
	t.Helper()
	if err := s.faults(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
}

// advance moves the clock of the local Pub/Sub forward.
func (s *shop) advance(t *testing.T, by string) {
	t.Helper()
	if _, err := call(t.Context(), http.MethodPost, "http://"+s.broker+"/control/advance", `{"by": "`+by+`"}`); err != nil {
		t.Fatal(err)
	}
}

// labels waits for the labels of an order, and compares their quantities.
func (s *shop) labels(t *testing.T, order int64, want ...int) {
	t.Helper()
	var got []int
	await(t, fmt.Sprintf("%d labels of order %d", len(want), order), func() bool {
		err := s.shipping.QueryRow(t.Context(), `SELECT array(SELECT quantity FROM labels WHERE order_id = $1 ORDER BY number)`, order).Scan(&got)
		if err != nil {
			t.Fatal(err)
		}
		return len(got) >= len(want)
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("labels of order %d (-want +got):\n%s", order, diff)
	}
}

var duplicates = regexp.MustCompile(`(?m)^inbox_events_total\{.*outcome="duplicate".*\} [1-9]`)

// awaitDuplicate waits until shipping has counted an event that came a second time.
func (s *shop) awaitDuplicate(t *testing.T) {
	t.Helper()
	await(t, "an event that comes twice", func() bool { return duplicates.MatchString(s.metrics(t, "shipping")) })
}

func (s *shop) metrics(t *testing.T, service string) string {
	t.Helper()
	text, err := call(t.Context(), http.MethodGet, s.urls[service]+"/metrics", "")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var (
	alert  = regexp.MustCompile(`- alert: (\w+)\n +expr: (.+)`)
	metric = regexp.MustCompile(`\b(?:outbox|inbox|reconcile|replica|consistency|database)_\w+`)
)

// checkMetrics compares the metrics of both services with those of the alerts that the chapter names.
func (s *shop) checkMetrics(t *testing.T, root string) {
	t.Helper()
	chapter, err := os.ReadFile(filepath.Join(root, existing))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(root, "deploy/observability/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	exported, checked := s.metrics(t, "orders")+s.metrics(t, "shipping"), 0
	for _, rule := range alert.FindAllStringSubmatch(string(rules), -1) {
		if !strings.Contains(string(chapter), "`"+rule[1]+"`") {
			continue
		}
		for _, name := range metric.FindAllString(rule[2], -1) {
			checked++
			if !strings.Contains(exported, "\n"+name) {
				t.Errorf("%s needs %s, which no service exports", rule[1], name)
			}
		}
	}
	if checked < 10 {
		t.Errorf("%d metrics of alerts: the chapter names too few", checked)
	}
}

// checkDatabase checks that the database of orders has kept what was its own.
func (s *shop) checkDatabase(t *testing.T) {
	t.Helper()
	var settings int
	err := s.orders.QueryRow(t.Context(), `SELECT count(*) FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole
		WHERE r.rolname IN ('orders_app', 'orders_owner')`).Scan(&settings)
	if err != nil || settings != 0 {
		t.Errorf("its roles have %d lists of settings, %v", settings, err)
	}
	var tables []string
	err = s.orders.QueryRow(t.Context(), `SELECT array(SELECT relname::text FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 1)`).Scan(&tables)
	if want := []string{"goose_db_version", "orders", "stock"}; err != nil || !slices.Equal(tables, want) {
		t.Errorf("the schema public has %v, %v; want %v", tables, err, want)
	}
}

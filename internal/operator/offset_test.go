package operator

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing/checkpoint"
)

var offsetSubscription = topics.Subscription(topics.Engagement, topics.Catalog)

var offsetNames = checkpoint.Names{
	Table: "engagement_offsets", Group: "catalog.engagement", Subscription: offsetSubscription, Metrics: "test.offset",
}

// save writes the offset of an instance, as a consumer does, at a time of the database.
func (b *bench) save(t *testing.T, instance string, published time.Time) {
	t.Helper()
	store := checkpoint.New(b.catalog, offsetNames, "revision", slog.New(slog.DiscardHandler))
	err := pgx.BeginFunc(t.Context(), b.catalog, func(tx pgx.Tx) error {
		pipeline := &pgx.Batch{}
		store.Save(pipeline, instance, checkpoint.Offset{MessageID: "m-" + instance, PublishTime: published}, published)
		return tx.SendBatch(t.Context(), pipeline).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// broker is a client of the test's project.
func (b *bench) broker(t *testing.T) *pubsub.Client {
	t.Helper()
	client, err := connect.NewPubSub(t.Context(), b.project, connect.PubSubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// pending acknowledges the messages that the subscription has, and returns their number.
func (b *bench) pending(t *testing.T, client *pubsub.Client) (n int) {
	t.Helper()
	name := "projects/" + b.project + "/subscriptions/" + offsetSubscription
	for {
		answer, err := client.SubscriptionAdminClient.Pull(t.Context(), &pubsubpb.PullRequest{
			Subscription: name, MaxMessages: 100,
			ReturnImmediately: true, //nolint:staticcheck // an answer without messages is the end of the test's
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.GetReceivedMessages()) == 0 {
			return n
		}
		var acks []string
		for _, m := range answer.GetReceivedMessages() {
			acks = append(acks, m.GetAckId())
		}
		n += len(acks)
		err = client.SubscriptionAdminClient.Acknowledge(t.Context(), &pubsubpb.AcknowledgeRequest{Subscription: name, AckIds: acks})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bench) send(t *testing.T, client *pubsub.Client, n int) {
	t.Helper()
	var messages []*pubsubpb.PubsubMessage
	for v := range n {
		messages = append(messages, event("e", int64(v+1)).Message())
	}
	_, err := client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: topics.InProject(b.project, topics.Engagement), Messages: messages,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOffsetShow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if stdout, _ := b.run(t, 0, "offset show"); !strings.Contains(stdout, "catalog.engagement has saved no offset yet") {
		t.Error(stdout)
	}
	newest, other := time.Now().Add(-time.Hour).UTC().Truncate(time.Second), time.Now().Add(-2*time.Hour).UTC().Truncate(time.Second)
	b.save(t, "one", newest)
	b.save(t, "two", other)
	var shown struct {
		Position checkpoint.Position
		Offsets  []checkpoint.Row
	}
	b.json(t, 0, "offset show", &shown)
	if p := shown.Position; !p.SafePosition.Equal(other.Add(-10*time.Minute)) || !p.PublishTime.Equal(newest) || p.Instances != 2 {
		t.Errorf("the position is %+v", p)
	}
	if len(shown.Offsets) != 2 || shown.Offsets[0].Instance != "two" || shown.Offsets[0].MessageID != "m-two" {
		t.Errorf("the offsets are %+v", shown.Offsets)
	}
	stdout, _ := b.run(t, 0, "offset show")
	for _, want := range []string{"safe position", stamp(other.Add(-10 * time.Minute)), "m-one", "revision", "1h0m"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in %s", want, stdout)
		}
	}
}

// The safe position of the real view: the rule stands in migration 01003.
func TestSafePosition(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin := b.pg.Pool(t, b.pg.Admin)
	start := time.Now().UTC().Truncate(time.Second)
	for name, test := range map[string]struct {
		rows string // instance, age of the last save, age of the position
		held string // age of an event that is held
		want time.Duration
	}{
		"one instance":                         {`('a', '1 min', '2 min')`, "", 12 * time.Minute},
		"the slowest instance":                 {`('a', '1 min', '2 min'), ('b', '1 min', '20 min')`, "", 30 * time.Minute},
		"an instance that died":                {`('a', '1 min', '2 min'), ('b', '59 min', '60 min')`, "", 70 * time.Minute},
		"an instance that died long ago":       {`('a', '1 min', '2 min'), ('b', '62 min', '63 min')`, "", 12 * time.Minute},
		"a group that stands still":            {`('a', '10 days', '10 days'), ('b', '10 days', '11 days')`, "", 11*24*time.Hour + 10*time.Minute},
		"a replay under way":                   {`('a', '1 min', '2 min'), ('reset', '5 h', '29 h')`, "", 29*time.Hour + 10*time.Minute},
		"a replay of long ago":                 {`('a', '1 min', '2 min'), ('reset', '25 h', '49 h')`, "", 12 * time.Minute},
		"an event that waits":                  {`('a', '1 min', '2 min')`, "3 days", 3 * 24 * time.Hour},
		"an event that the broker has no more": {`('a', '1 min', '2 min')`, "32 days", 12 * time.Minute},
	} {
		group := "group " + name
		_, err := admin.Exec(t.Context(), `
			INSERT INTO catalog.engagement_offsets (consumer_group, instance, source, subscription, message_id, publish_time, lag_millis, updated_at, updated_by)
			SELECT $1, i, CASE i WHEN 'reset' THEN i ELSE 'save' END, $1, 'm', $2::timestamptz - position::interval, 0, $2::timestamptz - saved::interval, ''
			  FROM (VALUES `+test.rows+`) AS v (i, saved, position)`, group, start)
		if err != nil {
			t.Fatal(err)
		}
		if test.held != "" {
			_, err := admin.Exec(t.Context(), `
				INSERT INTO catalog.inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status)
				VALUES ($1, gen_random_uuid(), 'x', 'x', 'x', 1, 'm', $2::timestamptz - $3::interval, 'held')`, group, start, test.held)
			if err != nil {
				t.Fatal(err)
			}
		}
		names := checkpoint.Names{Table: "engagement_offsets", Group: group, Subscription: group}
		at, err := checkpoint.New(b.catalog, names, "", slog.New(slog.DiscardHandler)).Load(t.Context())
		if err != nil || start.Sub(at.SafePosition) != test.want {
			t.Errorf("%s: the safe position is %v ago, want %v (%v)", name, start.Sub(at.SafePosition), test.want, err)
		}
	}
}

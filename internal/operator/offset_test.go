package operator

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/internal/connect"
	"example.com/lockstep/pkg/eventing/checkpoint"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

var offsetNames = checkpoint.Names{
	Table: "engagement_offsets", Group: "catalog.engagement", Subscription: otherSubscription, Metrics: "test.offset",
}

// save writes the offset of an instance, as a consumer does, at a time of the database.
func (b *bench) save(t *testing.T, instance string, published time.Time) {
	t.Helper()
	store := checkpoint.New(b.catalog, offsetNames, "revision", slog.New(slog.DiscardHandler))
	err := pgx.BeginFunc(t.Context(), b.catalog, func(tx pgx.Tx) error {
		pipeline := &pgx.Batch{}
		store.Save(pipeline, instance, checkpoint.Offset{MessageID: "m-" + instance, PublishTime: published})
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
	name := "projects/" + b.project + "/subscriptions/" + otherSubscription
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
		Topic: "projects/" + b.project + "/topics/engagement.events", Messages: messages,
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
	for _, want := range []string{"safe position", stamp(other.Add(-10 * time.Minute)), "m-one", "revision", "1h0m0"} {
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

// A reset brings back acknowledged messages, resets the table, and is audited with the rows
// from before.
func TestOffsetReset(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := b.broker(t)
	b.send(t, client, 5)
	if n := b.pending(t, client); n != 5 {
		t.Fatalf("%d messages", n)
	}
	b.save(t, "one", time.Now())
	b.save(t, "two", time.Now())
	hourAgo := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	var plan resetPlan
	b.json(t, 0, "offset reset --to "+hourAgo, &plan)
	if !plan.DryRun || plan.Discards || plan.Window != "168h0m0s" {
		t.Errorf("the plan is %+v", plan)
	}
	if n := b.pending(t, client); n != 0 {
		t.Errorf("a plan replays %d messages", n)
	}
	b.json(t, 0, "offset reset --yes --why restored --to "+hourAgo, &plan)
	if plan.DryRun || plan.To.Format(time.RFC3339) != hourAgo {
		t.Errorf("the reset was %+v", plan)
	}
	if n := b.pending(t, client); n != 5 {
		t.Errorf("%d messages are replayed, want 5", n)
	}
	entries := count(t, b.catalog, `
		SELECT count(*) FROM operator_actions
		 WHERE action = 'offset reset' AND actor = 'ada' AND why = 'restored' AND jsonb_array_length(record->'before') = 2
		   AND (record->>'publish_time')::timestamptz = $1::timestamptz`, hourAgo)
	if entries != 1 {
		t.Error("the reset is not in the audit table with what was before")
	}
	var shown struct{ Offsets []checkpoint.Row }
	b.json(t, 0, "offset show", &shown)
	if len(shown.Offsets) != 1 || shown.Offsets[0].Source != "reset" || shown.Offsets[0].UpdatedBy != "ada" {
		t.Errorf("the rows are %+v", shown.Offsets)
	}
	b.json(t, 0, "offset reset --yes --to earliest", &plan) // again
	if n := b.pending(t, client); n != 5 {
		t.Errorf("%d messages are replayed from the earliest, want 5", n)
	}
}

// A reset that cannot be recorded moves nothing: the entry of audit comes before the seek.
func TestOffsetResetIsRecordedFirst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := b.broker(t)
	b.send(t, client, 3)
	if n := b.pending(t, client); n != 3 {
		t.Fatalf("%d messages", n)
	}
	b.save(t, "one", time.Now())
	if _, err := b.pg.Pool(t, b.pg.Admin).Exec(t.Context(), `ALTER TABLE catalog.operator_actions RENAME TO elsewhere`); err != nil {
		t.Fatal(err)
	}
	if _, stderr := b.run(t, 1, "offset reset --yes --to earliest"); !strings.Contains(stderr, "nothing was moved") {
		t.Error(stderr)
	}
	if n := b.pending(t, client); n != 0 {
		t.Errorf("%d messages are replayed by a reset without an entry", n)
	}
}

// Two resets are one after the other, and the second one decides on the position that the
// first one has made.
func TestOffsetResetsTakeTurns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := b.broker(t)
	b.save(t, "one", time.Now())
	names := checkpoint.Names{Table: "engagement_offsets", Group: "catalog.engagement", Subscription: otherSubscription}
	store := checkpoint.New(b.catalog, names, "", slog.New(slog.DiscardHandler))
	first, err := b.catalog.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtext('lockstep offset reset ' || $1))`, names.Group); err != nil {
		t.Fatal(err)
	}
	reset := func(ago time.Duration, discard bool) error {
		return store.Reset(t.Context(), client, time.Now().Add(-ago), discard, audit.Actor{By: "ada"})
	}
	if err := reset(time.Hour, false); !errors.Is(err, checkpoint.ErrBusy) {
		t.Errorf("during a reset: %v", err)
	}
	if err := first.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := reset(24*time.Hour, false); err != nil {
		t.Error(err)
	}
	if err := reset(time.Hour, false); !errors.Is(err, checkpoint.ErrDiscards) {
		t.Errorf("to after the other one's position: %v", err)
	}
	if n := count(t, b.catalog, `SELECT count(*) FROM operator_actions`); n != 1 {
		t.Errorf("%d entries, want that of the reset that was done", n)
	}
	if err := reset(time.Hour, true); err != nil {
		t.Error(err)
	}
}

// A reset that would give up messages needs a decision.
func TestOffsetResetDiscards(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := b.broker(t)
	b.send(t, client, 3)
	recent := time.Now().Add(-5 * time.Minute).UTC().Format(time.RFC3339)
	refused := func(line, why string) {
		t.Helper()
		if _, stderr := b.run(t, 1, line); !strings.Contains(stderr, why) {
			t.Errorf("%s: %s", line, stderr)
		}
	}
	refused("offset reset --yes --to "+recent, "has saved no offset")
	b.save(t, "one", time.Now())
	refused("offset reset --yes --to latest", "--discard-backlog")
	refused("offset reset --yes --to "+recent, "is after the safe position")
	refused("offset reset --yes --to "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "in the future")
	refused("offset reset --yes --to "+time.Now().Add(-8*24*time.Hour).UTC().Format(time.RFC3339), "keeps messages for 168h0m0s")
	if stdout, _ := b.run(t, 0, "offset reset --to latest --discard-backlog"); !strings.Contains(stdout, "GIVES UP") ||
		!strings.Contains(stdout, unchanged) {
		t.Errorf("the plan is %s", stdout)
	}
	if n := count(t, b.catalog, `SELECT count(*) FROM operator_actions`); n != 0 {
		t.Errorf("%d entries of what was not done", n)
	}
	b.run(t, 0, "offset reset --to latest --discard-backlog --yes --why poison")
	if n := b.pending(t, client); n != 0 {
		t.Errorf("%d messages are left", n)
	}
	for _, line := range []string{"offset reset", "offset reset --to soon", "offset reset --to latest x", "offset"} {
		b.run(t, 2, line)
	}
}

// A subscription that keeps no acknowledged messages cannot be replayed.
func TestOffsetResetWithoutRetention(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := b.broker(t)
	b.save(t, "one", time.Now())
	change := func(retain bool, keep time.Duration) {
		t.Helper()
		_, err := client.SubscriptionAdminClient.UpdateSubscription(t.Context(), &pubsubpb.UpdateSubscriptionRequest{
			Subscription: &pubsubpb.Subscription{
				Name: "projects/" + b.project + "/subscriptions/" + otherSubscription, RetainAckedMessages: retain,
				MessageRetentionDuration: durationpb.New(keep),
			},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"retain_acked_messages", "message_retention_duration"}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	hourAgo := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	change(true, 30*time.Minute)
	if _, stderr := b.run(t, 1, "offset reset --yes --to "+hourAgo); !strings.Contains(stderr, "keeps messages for 30m") {
		t.Error(stderr)
	}
	change(false, time.Hour)
	for _, to := range []string{hourAgo, "earliest"} {
		if _, stderr := b.run(t, 1, "offset reset --yes --to "+to); !strings.Contains(stderr, "keeps no acknowledged messages") {
			t.Error(stderr)
		}
	}
}

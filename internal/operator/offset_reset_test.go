package operator

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/checkpoint"
	"example.com/lockstep/pkg/eventing/operator/audit"
)

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
	b.json(t, 0, "offset reset --yes --why test --to earliest", &plan) // again
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
	pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), `ALTER TABLE catalog.operator_actions RENAME TO elsewhere`)
	if _, stderr := b.run(t, 1, "offset reset --yes --why test --to earliest"); !strings.Contains(stderr, "nothing was moved") {
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
	store := checkpoint.New(b.catalog, offsetNames, "", slog.New(slog.DiscardHandler))
	first := pgtest.Begin(t, b.catalog)
	pgtest.Exec(t, first, `SELECT pg_advisory_xact_lock(hashtext('lockstep offset reset ' || $1))`, offsetNames.Group)
	reset := func(ago time.Duration, discard bool) error {
		return store.Reset(t.Context(), client, time.Now().Add(-ago), discard, audit.Actor{By: "ada"})
	}
	if err := reset(time.Hour, false); !errors.Is(err, checkpoint.ErrBusy) {
		t.Errorf("during a reset: %v", err)
	}
	pgtest.End(t, first.Rollback)
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
	refused("offset reset --yes --why test --to "+recent, "has saved no offset")
	b.save(t, "one", time.Now())
	refused("offset reset --yes --why test --to latest", "--discard-backlog")
	refused("offset reset --yes --why test --to "+recent, "is after the safe position")
	refused("offset reset --yes --why test --to "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "in the future")
	refused("offset reset --yes --why test --to "+time.Now().Add(-8*24*time.Hour).UTC().Format(time.RFC3339), "keeps messages for 168h0m0s")
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

// After the first deployment, which had no offset to count back from, no time is safe: a refusal
// names the reset that is, and that is done.
func TestOffsetResetAfterAFirstDeployment(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := b.broker(t)
	b.send(t, client, 3)
	store := checkpoint.New(b.catalog, offsetNames, "revision", slog.New(slog.DiscardHandler))
	if at, err := store.Start(t.Context(), client, "one", 10*time.Minute); err != nil || !at.IsZero() {
		t.Fatalf("the start has sought to %v: %v", at, err)
	}
	b.save(t, "one", time.Now())
	recent := time.Now().Add(-5 * time.Minute).UTC().Format(time.RFC3339)
	_, stderr := b.run(t, 1, "offset reset --yes --why test --to "+recent)
	if !strings.Contains(stderr, "older than all messages of the subscription") || !strings.Contains(stderr, "reset with --to earliest") {
		t.Error(stderr)
	}
	b.run(t, 0, "offset reset --yes --why test --to earliest")
	if n := b.pending(t, client); n != 3 {
		t.Errorf("%d messages are replayed, want 3", n)
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
				Name: "projects/" + b.project + "/subscriptions/" + offsetSubscription, RetainAckedMessages: retain,
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
	if _, stderr := b.run(t, 1, "offset reset --yes --why test --to "+hourAgo); !strings.Contains(stderr, "keeps messages for 30m") {
		t.Error(stderr)
	}
	change(false, time.Hour)
	for _, to := range []string{hourAgo, "earliest"} {
		if _, stderr := b.run(t, 1, "offset reset --yes --why test --to "+to); !strings.Contains(stderr, "keeps no acknowledged messages") {
			t.Error(stderr)
		}
	}
}

package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/operator/backlog"
)

// outboxEvent is the part of an event's JSON that the tests read.
type outboxEvent struct {
	EventID     uuid.UUID `json:"event_id"`
	AggregateID string    `json:"aggregate_id"`
	Version     int64
	State       string
	Reason      string
}

func TestOutboxStatusListAndShow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 3)
	b.park(t, ids[0], "rpc error:\n no field 7")
	var status struct {
		Pending, Parked, Blocked int
		OldestAge                *float64 `json:"oldest_age_seconds"`
		ByReason                 []struct {
			Reason string
			Parked int
		} `json:"by_reason"`
		ByAggregate []outboxEvent `json:"by_aggregate"`
	}
	b.json(t, 0, "outbox status", &status)
	if status.Pending != 3 || status.Parked != 1 || status.Blocked != 2 || status.OldestAge == nil ||
		len(status.ByReason) != 1 || len(status.ByAggregate) != 1 || status.ByAggregate[0].EventID != ids[0] {
		t.Errorf("status %+v", status)
	}
	var list struct{ Events []outboxEvent }
	b.json(t, 0, "outbox list --limit 2", &list)
	if len(list.Events) != 2 || list.Events[0].State != "parked" || list.Events[1].State != "blocked" {
		t.Errorf("list %+v", list)
	}
	b.json(t, 0, "outbox list --aggregate nothing", &list)
	if list.Events == nil || len(list.Events) != 0 {
		t.Errorf("empty list %+v, want [] and not null", list)
	}
	for _, line := range []string{"status", "list --parked", "show " + ids[0].String()} {
		stdout, stderr := b.run(t, 0, "outbox "+line)
		if !strings.Contains(stdout, ids[0].String()) || !strings.Contains(stdout, "rpc error: no field 7") || stderr != "" {
			t.Errorf("outbox %s does not show the parked event and why, in one line: %s%s", line, stdout, stderr)
		}
	}
	size := fmt.Sprintf(`"%d bytes, --json has them"`, len(payload))
	if stdout, _ := b.run(t, 0, "outbox show "+ids[0].String()); !strings.Contains(stdout, size) || strings.Contains(stdout, fmt.Sprintf("%x", payload)) {
		t.Errorf("show: %s; want the size of the payload, and not the payload", stdout)
	}
	var whole struct{ Row struct{ Payload string } }
	b.json(t, 0, "outbox show "+ids[0].String(), &whole)
	if whole.Row.Payload != fmt.Sprintf(`\x%x`, payload) {
		t.Errorf("show in JSON: %+v", whole)
	}
	if _, stderr := b.run(t, 1, "outbox show "+uuid.NewString()); !strings.Contains(stderr, "no such event") {
		t.Errorf("show of nothing: %s", stderr)
	}
}

func TestOutboxRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const parked = `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL`
	for _, aggregate := range []string{"a", "b", "c", "d"} {
		reason := map[bool]string{true: "too large", false: "no field 7"}[aggregate == "d"]
		b.park(t, b.append(t, aggregate, 2)[0], reason)
	}
	var list struct{ Events []outboxEvent }
	b.json(t, 0, "outbox list --parked --reason large", &list)
	var retried struct{ Retried int }
	b.json(t, 0, "outbox retry --all --reason 7 --why fixed", &retried)
	if n := count(t, b.video, parked); retried.Retried != 3 || n != 1 {
		t.Errorf("retried %d of those with that reason, %d are parked", retried.Retried, n)
	}
	if stdout, _ := b.run(t, 0, "outbox retry --all --reason TOO_LARGE --why fixed"); !strings.Contains(stdout, "No parked event matches") {
		t.Errorf("of a reason that none has: %s", stdout)
	}
	b.json(t, 0, "outbox retry "+list.Events[0].EventID.String()+" --by bob --why fixed", &retried)
	if n := count(t, b.video, parked); retried.Retried != 1 || n != 0 {
		t.Errorf("retried %d, %d are parked", retried.Retried, n)
	}
	if n := count(t, b.video, `SELECT count(*) FROM operator_actions WHERE actor = 'bob' AND why = 'fixed'`); n != 1 {
		t.Error("the audit table does not say who and why")
	}
	if n := count(t, b.video, `SELECT count(*) FROM operator_actions WHERE actor = 'ada'`); n != 3 {
		t.Error("the audit table does not take who from USER")
	}
	if _, stderr := b.run(t, 1, "outbox retry --why y "+list.Events[0].EventID.String()); !strings.Contains(stderr, "not parked") {
		t.Errorf("retry of what is not parked: %s", stderr)
	}
}

// Another session holds the row of one parked event, for as long as it wants. The others leave, the answer counts
// the one, and the exit code says that the command has not done everything.
func TestOutboxRetryBehindALockedRow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var ids []uuid.UUID
	for _, aggregate := range []string{"a", "b", "c"} {
		ids = append(ids, b.append(t, aggregate, 1)[0])
		b.park(t, ids[len(ids)-1], "no field 7")
	}
	other := pgtest.Begin(t, b.video)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, other, `SELECT FROM outbox WHERE id = $1 FOR UPDATE`, ids[0])
	var retried struct{ Retried, Locked int }
	b.json(t, 1, "outbox retry --all --why fixed", &retried)
	if retried.Retried != 2 || retried.Locked != 1 || count(t, b.video, `SELECT count(*) FROM outbox WHERE parked_at IS NOT NULL`) != 1 {
		t.Errorf("%+v", retried)
	}
	stdout, stderr := b.run(t, 1, "outbox retry --all --why fixed")
	if !strings.Contains(stdout, "0 parked events are free") || !strings.Contains(stderr, "had locked 1 parked events: run the command again") {
		t.Errorf("of a locked event alone: %s%s", stdout, stderr)
	}
}

func TestOutboxSkipNeedsConfirmation(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const rows = `SELECT count(*) FROM outbox WHERE event_type <> 'Skipped'`
	ids := b.append(t, "a", 4)
	for _, id := range ids {
		b.park(t, id, "no field 7")
	}
	var result struct {
		Skipped bool
		Blocked int
		Note    string
		Event   outboxEvent
	}
	line := "outbox skip " + ids[0].String()
	b.json(t, 0, line, &result)
	if result.Skipped || result.Event.EventID != ids[0] || !strings.Contains(result.Note, "repair") || count(t, b.video, rows) != 4 {
		t.Errorf("dry run: %+v", result)
	}
	if stdout, _ := b.run(t, 0, line); !strings.Contains(stdout, "Nothing was changed") || !strings.Contains(stdout, leftMarker) || strings.Contains(stdout, isNewest) ||
		count(t, b.video, rows) != 4 {
		t.Errorf("dry run: %s", stdout)
	}
	if stdout, _ := b.run(t, 0, line+" --yes --why duplicate"); !strings.Contains(stdout, "Skipped.") || count(t, b.video, rows) != 3 {
		t.Errorf("with a reason: %s", stdout)
	}
	if n := count(t, b.video, `SELECT count(*) FROM operator_actions WHERE why = 'duplicate' AND actor = 'ada' AND event_id = $1`, ids[0]); n != 1 {
		t.Error("the audit table does not say why")
	}
	b.json(t, 0, "outbox skip --yes "+ids[1].String()+" --why confirmed", &result)
	if !result.Skipped || count(t, b.video, rows) != 2 {
		t.Errorf("confirmed: %+v", result)
	}
	if stdout, _ := b.run(t, 0, "outbox show "+ids[1].String()); !strings.Contains(stdout, "skip by ada (role video_service): confirmed") {
		t.Errorf("show of a skipped event: %s", stdout)
	}
	if _, stderr := b.run(t, 1, line+" --yes --why test"); !strings.Contains(stderr, "not parked") {
		t.Errorf("skip of a skipped event: %s", stderr)
	}
	b.park(t, ids[0], "no field 7")
	if stdout, _ := b.run(t, 0, line); !strings.Contains(stdout, leftHole) {
		t.Errorf("dry run for a marker: %s", stdout)
	}
	if stdout, _ := b.run(t, 0, "outbox skip "+ids[3].String()); !strings.Contains(stdout, leftMarker+isNewest) {
		t.Errorf("dry run for the newest event: %s", stdout)
	}
}

func TestOutboxPurge(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 5)
	for i, days := range []int{0, 6, 12, 0} { // the fourth is the newest published one, which stays
		_, err := b.video.Exec(t.Context(), `UPDATE outbox SET published_at = now() - make_interval(days => $2) WHERE id = $1`, ids[i], days)
		if err != nil {
			t.Fatal(err)
		}
	}
	var purged struct {
		Old, Purged int
		DryRun      bool `json:"dry_run"`
	}
	for _, step := range []struct {
		line string
		old  int
	}{{"", 1}, {" --older-than 24h", 1}, {" --older-than 0s", 1}, {" --older-than 0s", 0}} {
		line := "outbox purge" + step.line
		b.json(t, 0, line, &purged)
		if !purged.DryRun || purged.Old != step.old || purged.Purged != 0 {
			t.Errorf("%s: %+v, want a dry run of %d", line, purged, step.old)
		}
		b.json(t, 0, line+" --yes --why test", &purged)
		if purged.DryRun || purged.Old != step.old || purged.Purged != step.old {
			t.Errorf("%s --yes --why test: %+v, want %d", line, purged, step.old)
		}
	}
	if n := count(t, b.video, `SELECT count(*) FROM operator_actions WHERE action = 'purge' AND actor = 'ada' AND record->>'purged' = '1'`); n != 3 {
		t.Errorf("%d audit entries, want one for each of three events", n)
	}
	if count(t, b.video, `SELECT count(*) FROM outbox WHERE published_at IS NULL`) != 1 {
		t.Error("an unpublished event was purged")
	}
}

func TestOutboxPurgeIsADryRunWithoutYes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ids := b.append(t, "a", 2)
	pgtest.Exec(t, b.video, `UPDATE outbox SET published_at = now() - interval '8 days' WHERE id = ANY ($1)`, ids)
	const rows = `SELECT count(*) FROM outbox`
	if stdout, _ := b.run(t, 0, "outbox purge"); !strings.Contains(stdout, "1 events") || !strings.Contains(stdout, "Nothing was changed") || count(t, b.video, rows) != 2 {
		t.Errorf("dry run: %s", stdout)
	}
	if stdout, _ := b.run(t, 0, "outbox purge --yes --why full"); !strings.Contains(stdout, "Removed 1 events") || count(t, b.video, rows) != 1 {
		t.Errorf("with a reason: %s", stdout)
	}
	if n := count(t, b.video, `SELECT count(*) FROM operator_actions WHERE action = 'purge' AND why = 'full'`); n != 1 {
		t.Error("the audit table does not say why")
	}
}

func TestOutboxDrain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const unpublished = `SELECT count(*) FROM outbox WHERE published_at IS NULL`
	for range 30 {
		b.append(t, uuid.NewString(), 5)
	}
	var left struct{ Pending, Parked, Blocked int }
	b.json(t, 0, "outbox drain", &left)
	if left.Pending != 0 || count(t, b.video, unpublished) != 0 {
		t.Errorf("left %+v", left)
	}
	b.json(t, 0, "outbox drain", &left) // nothing to do
	b.park(t, b.append(t, "a", 3)[0], "no field 7")
	b.append(t, "b", 3)
	stdout, stderr := b.run(t, 0, "outbox drain")
	if !strings.Contains(stdout, "1 events are parked and need a person") || count(t, b.video, unpublished) != 3 {
		t.Errorf("with a parked event: %s", stdout)
	}
	// Terraform has an alert on this line.
	var line struct {
		Message, Severity string
		Parked            int
	}
	if err := json.Unmarshal([]byte(stderr), &line); err != nil || line.Message != "events are parked and need a person" || line.Severity != "ERROR" || line.Parked != 1 {
		t.Errorf("with a parked event the log has %s, want one line at ERROR with the number: %v", stderr, err)
	}
	b.json(t, 0, "outbox drain", &left)
	if left.Pending != 3 || left.Parked != 1 || left.Blocked != 2 {
		t.Errorf("with a parked event: %+v", left)
	}
	b.append(t, "c", 3)
	b.project = "nowhere" // its topics do not exist
	if _, stderr := b.run(t, 1, "outbox drain --timeout 3s"); !strings.Contains(stderr, "events are left after 3s") || count(t, b.video, unpublished) != 6 {
		t.Errorf("without a broker: %s", stderr)
	}
}

// The time of --timeout includes the wait for the database.
func TestOutboxDrainWithoutADatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	away := func(name string) string {
		if name == "DATABASE_URL" {
			return "postgres://nobody@127.0.0.1:1/nothing"
		}
		return b.getenv("video")(name)
	}
	var stderr strings.Builder
	code := b.service("video").Run(t.Context(), []string{"outbox", "drain", "--timeout", "1s"}, away, io.Discard, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "no database after 1s") {
		t.Errorf("code %d: %s", code, stderr.String())
	}
}

// TestOutboxDrainUnderWrites has a trigger commit the next event of an aggregate together with each
// mark of a published one, so there is no moment without an event that could be sent.
func TestOutboxDrainUnderWrites(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	before := b.append(t, "busy", 1)
	for range 3 {
		before = append(before, b.append(t, uuid.NewString(), 5)...)
	}
	pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), `
		CREATE FUNCTION video.write_on() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
		  INSERT INTO video.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		  VALUES (gen_random_uuid(), NEW.aggregate_type, NEW.aggregate_id, NEW.event_type, NEW.version + 1, NEW.payload);
		  RETURN NULL;
		END $$;
		CREATE TRIGGER write_on AFTER UPDATE ON video.outbox FOR EACH ROW
		  WHEN (NEW.aggregate_id = 'busy' AND OLD.published_at IS NULL AND NEW.published_at IS NOT NULL) EXECUTE FUNCTION video.write_on()`)
	// --timeout bounds a drain that would otherwise not end.
	b.run(t, 0, "outbox drain --timeout 20s")
	if n := count(t, b.video, `SELECT count(*) FROM outbox WHERE published_at IS NULL AND id = ANY ($1)`, before); n != 0 {
		t.Errorf("%d events from before the drain are left", n)
	}
	if n := count(t, b.video, `SELECT count(*) FROM outbox WHERE published_at IS NULL`); n != 1 {
		t.Errorf("%d events are left, want the one that the last mark has written", n)
	}
}

// The numbers of a backlog that is not counted to its end say so, in `outbox status` and in `outbox drain`.
func TestCountsOfALargeBacklog(t *testing.T) {
	t.Parallel()
	for more, want := range map[bool]string{
		false: "pending\t7\nblocked\t2\nparked\t1\n", true: "pending\t7 or more\nblocked\t2 or more\nparked\t1\n",
	} {
		var out strings.Builder
		printCounts(&out, backlog.Status{Pending: 7, Blocked: 2, Parked: 1, More: more})
		if out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}

package queue_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// inOwnSession writes the row of the relay "relay" in a session of its own, and returns a function that ends the session.
func (b box) inOwnSession(t *testing.T, pg *pgtest.DB, last queue.HeartbeatResult) (end func()) {
	t.Helper()
	db := pg.Pool(t, pg.URL)
	b.heartbeatAfter(t, queue.New(db), "relay", last.Low, last)
	pid := b.count(t, `SELECT session FROM outbox_relays WHERE token = 'relay'`)
	return func() {
		db.Close()
		for range 10_000 {
			if b.count(t, `SELECT count(*) FROM pg_stat_get_activity($1)`, pid) == 0 {
				return
			}
			backoff.Sleep(t.Context(), time.Millisecond, nil)
		}
		t.Fatal("the session of the row lasts")
	}
}

// A relay whose session has ended is dead after one missing heartbeat. If a heartbeat is missing for another reason, it
// has the time of two.
func TestARelayWithoutItsSessionIsGone(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL)
	b := box{queue.New(db), db}
	for name, tc := range map[string]struct {
		change string // of its row
		ends   bool   // its session
		gone   bool
		soon   bool // it will be, unless it writes a heartbeat
	}{
		"one heartbeat is missing, and the session":           {`seen_at = now() - interval '7 s'`, true, true, false},
		"one heartbeat is missing":                            {`seen_at = now() - interval '7 s'`, false, false, false},
		"the session was replaced":                            {`seen_at = now() - interval '4 s'`, true, false, true},
		"the row is of another server, or of an earlier life": {`seen_at = now() - interval '7 s', server = server - interval '1 s'`, true, false, false},
		"the row is of an earlier release":                    {`seen_at = now() - interval '7 s', server = NULL, session = NULL`, true, false, false},
		"it has said that it has ended":                       {`seen_at = '-infinity'`, false, true, false},
	} {
		beats := b.registered(t, "relay", "successor", "third")
		b.exec(t, `UPDATE outbox_relays SET session = NULL, server = NULL WHERE token = 'relay'`)
		end := b.inOwnSession(t, pg, beats["relay"])
		if tc.ends {
			end()
		}
		b.exec(t, `UPDATE outbox_relays SET `+tc.change+` WHERE token = 'relay'`)
		got := b.heartbeatAfter(t, b.Queue, "successor", beats["successor"].Low, beats["successor"])
		if isGone := slices.Equal(got.Gone, []string{"relay"}); isGone != tc.gone || slices.Contains(got.Alive, "relay") == tc.gone {
			t.Errorf("%s: gone %v, alive %v", name, got.Gone, got.Alive)
		}
		if in := got.GoneIn; (in > 0) != tc.soon || in > 2*time.Second {
			t.Errorf("%s: gone in %v", name, in)
		}
		inherited, low, rows := queue.TxSnapshot(""), queue.TxSnapshot(""), 3
		switch {
		case !tc.gone:
		case tc.ends:
			low = beats["relay"].Low
		default:
			inherited, rows = beats["relay"].Low, 2
		}
		if got.Inherited != inherited || got.GoneLow != low || b.tokens(t) != rows {
			t.Errorf("%s: %d rows are left, inherited %q, and it scans from %q", name, b.tokens(t), got.Inherited, got.GoneLow)
		}
	}
	// A relay that is silent for longer may only be slow. It is taken over, and its leases last.
	beats := b.registered(t, "relay", "successor")
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '16 s' WHERE token = 'relay'`)
	got := b.heartbeatAfter(t, b.Queue, "successor", beats["successor"].Low, beats["successor"])
	if len(got.Gone) != 0 || got.Inherited == "" {
		t.Errorf("silent: gone %v, inherited %q", got.Gone, got.Inherited)
	}
}

// A stall of the database keeps all relays from their heartbeats, and ends their sessions. The first relay that goes on leaves the
// others the time for a heartbeat.
func TestNoRelayIsGoneAfterAStall(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL)
	b := box{queue.New(db), db}
	beats := b.registered(t, "relay", "first")
	b.inOwnSession(t, pg, beats["relay"])()
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '7 s' WHERE token = 'relay'`)
	last := beats["first"]
	stall := 7 * time.Second
	last.Clock.Answered = last.Clock.Answered.Add(-stall)
	for _, after := range []time.Duration{0, 4 * time.Second} {
		last.Clock.Answered, last.Resumed = last.Clock.Answered.Add(-after), last.Resumed.Add(-after)
		if last = b.heartbeatAfter(t, b.Queue, "first", last.Low, last); len(last.Gone) != 0 || !slices.Contains(last.Alive, "relay") {
			t.Fatalf("%v after the stall: gone %v, alive %v", after, last.Gone, last.Alive)
		}
	}
	last.Resumed = last.Resumed.Add(-3 * time.Second)
	if last = b.heartbeatAfter(t, b.Queue, "first", last.Low, last); !slices.Equal(last.Gone, []string{"relay"}) {
		t.Errorf("gone %v", last.Gone)
	}
}

// The database stalls while a heartbeat is on its way to it, so the relay does not know yet that it has missed one. The server
// does. A stall that is as long as the limit of a heartbeat ends the sessions of others, so it counts already.
func TestNoRelayIsGoneForAHeartbeatThatHasWaited(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL)
	b := box{queue.New(db), db}
	for _, stall := range []time.Duration{queue.Timeout + 100*time.Millisecond, 8 * time.Second, 0} {
		beats := b.registered(t, "relay", "first")
		b.inOwnSession(t, pg, beats["relay"])()
		b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '10 s' WHERE token = 'relay'`)
		b.exec(t, `UPDATE outbox_relays SET seen_at = now() - $1::interval WHERE token = 'first'`, stall)
		got := b.heartbeatAfter(t, b.Queue, "first", beats["first"].Low, beats["first"])
		if isGone := slices.Equal(got.Gone, []string{"relay"}); isGone != (stall == 0) || slices.Contains(got.Alive, "relay") == isGone {
			t.Errorf("%v after the heartbeat before: gone %v, alive %v", stall, got.Gone, got.Alive)
		}
	}
	// A stall of the same length between the heartbeats.
	beats := b.registered(t, "relay", "first")
	b.inOwnSession(t, pg, beats["relay"])()
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '10 s' WHERE token = 'relay'`)
	last := beats["first"]
	last.Clock.Answered = last.Clock.Answered.Add(-queue.Timeout - 100*time.Millisecond)
	if got := b.heartbeatAfter(t, b.Queue, "first", last.Low, last); len(got.Gone) != 0 || got.Resumed.IsZero() {
		t.Errorf("gone %v, resumed at %v", got.Gone, got.Resumed)
	}
}

// Another session has locked a relay's row, such as a forgotten transaction. The relay lives, but its heartbeats fail, and nobody
// can take over the row. Its leases count again when those of a killed relay would be over.
func TestARelayWithALockedRowIsNotGoneForEver(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL)
	b := box{queue.New(db), db}
	beats := b.registered(t, "relay", "other")
	b.inOwnSession(t, pg, beats["relay"])()
	for age, gone := range map[time.Duration]bool{16 * time.Second: true, 40 * time.Second: false} {
		b.exec(t, `UPDATE outbox_relays SET seen_at = now() - $1::interval WHERE token = 'relay'`, age)
		tx := pgtest.Begin(t, db)
		pgtest.Exec(t, tx, `SELECT FROM outbox_relays WHERE token = 'relay' FOR UPDATE`)
		beats["other"] = b.heartbeatAfter(t, b.Queue, "other", beats["other"].Low, beats["other"])
		if got := beats["other"]; slices.Contains(got.Gone, "relay") != gone || slices.Contains(got.Alive, "relay") {
			t.Errorf("%v after its last heartbeat: gone %v, alive %v", age, got.Gone, got.Alive)
		}
		pgtest.End(t, tx.Rollback)
	}
}

// A relay that ends would forget which relays are gone. It leaves them to the others.
func TestARelayThatEndsLeavesTheGoneToOthers(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL)
	b := box{queue.New(db), db}
	beats := b.registered(t, "relay", "ending", "third")
	b.inOwnSession(t, pg, beats["relay"])()
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '7 s' WHERE token = 'relay'`)
	if _, err := b.Heartbeat(t.Context(), "ending", "", nil, beats["ending"], true); err != nil {
		t.Fatal(err)
	}
	got := b.heartbeatAfter(t, b.Queue, "third", beats["third"].Low, beats["third"])
	slices.Sort(got.Gone)
	if !slices.Equal(got.Gone, []string{"ending", "relay"}) {
		t.Errorf("gone %v", got.Gone)
	}
}

// The leases of a relay that is gone count as none, for each kind of claim, and those of others count.
func TestClaimsIgnoreTheLeasesOfTheGone(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	before := b.snapshot(t)
	for _, id := range []string{"a", "b", "retry"} {
		b.append(t, id, 1, 2)
	}
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE aggregate_id = 'retry' AND version = 1`)
	lease := func() {
		b.exec(t, `UPDATE outbox SET lock_token = CASE aggregate_id WHEN 'b' THEN 'slow' ELSE 'gone' END, locked_at = now() WHERE version = 1`)
	}
	c := as("successor")
	c.Gone = []string{"gone", "another"}
	for name, claim := range map[string]func() (queue.Claimed, error){
		"new": func() (queue.Claimed, error) { return b.ClaimNew(t.Context(), c, before, nil) },
		"page": func() (queue.Claimed, error) {
			p, err := b.Scan(t.Context(), c, queue.Beginning.Since()[0], 100)
			return p.Claimed, err
		},
		"retries": func() (queue.Claimed, error) {
			got, _, err := b.ClaimRetries(t.Context(), c)
			return got, err
		},
	} {
		lease()
		got, err := claim()
		var ids []string
		for _, batch := range got.Batches {
			ids = append(ids, batch[0].AggregateID)
		}
		slices.Sort(ids)
		want := []string{"a", "retry"}
		if name == "retries" {
			want = []string{"retry"}
		}
		if err != nil || !slices.Equal(ids, want) || name != "retries" && !got.Skipped {
			t.Errorf("%s: claimed %v, skipped %t, %v", name, ids, got.Skipped, err)
		}
	}
}

// Another session has locked the row of an event that a relay left behind, such as a last statement of that relay. The event waits for
// that session, and not for the end of the lease.
func TestALockedEventOfTheGoneDoesNotWaitForItsLease(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 1)
	b.exec(t, `UPDATE outbox SET lock_token = 'gone', locked_at = now()`)
	other := pgtest.Begin(t, b.db)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, other, `SELECT FROM outbox FOR UPDATE`)
	c := as("successor")
	c.Gone = []string{"gone"}
	got, err := b.Scan(t.Context(), c, queue.Beginning.Since()[0], 100)
	if err != nil || len(got.Batches) != 0 || !got.Skipped || got.FreeIn != 0 {
		t.Errorf("%d batches, skipped %t, free in %v, %v", len(got.Batches), got.Skipped, got.FreeIn, err)
	}
}

package outbox

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// leftBehind starts a relay that leases an event and writes a heartbeat, and ends the sessions of its process. The event's lease
// lasts.
func (b *bench) leftBehind(t *testing.T) (gone *Relay, goOn func()) {
	t.Helper()
	before := b.relayDB
	open := func() *pgxpool.Pool {
		db := pgtest.Open(t, b.db.Config())
		return db
	}
	b.relayDB = open()
	gone, lost := b.handedOver(t)
	b.append(t, "a", 1, 1)
	gone.claim(t, lost)
	if err := gone.writeHeartbeat(t.Context(), false); err != nil || len(lost) != 1 {
		t.Fatal(len(lost), err)
	}
	session := b.count(t, `SELECT session FROM outbox_relays WHERE token = $1`, gone.token)
	b.relayDB.Close()
	b.poll(t, func() bool { return b.count(t, `SELECT count(*) FROM pg_stat_get_activity($1)`, session) == 0 }, "the session lasts")
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '7 s' WHERE token = '`+gone.token+`'`)
	b.relayDB = before
	return gone, func() { gone.queue = queue.New(open()) }
}

// The process of a relay is killed. Its sessions end with it, so its events wait for one heartbeat, and not for the end of their
// leases. Its row stays until it counts as dead. One scan is enough meanwhile.
func TestTheEventsOfAKilledRelayDoNotWaitForTheirLeases(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	b.leftBehind(t)
	beat(t, r)
	if !r.scanDue(t, claimed) || len(claimed) != 1 {
		t.Errorf("%d batches are claimed", len(claimed))
	}
	beat(t, r)
	if !r.followUps.due().scanAt.IsZero() || b.count(t, `SELECT count(*) FROM outbox_relays`) != 2 {
		t.Error("the same relay is scanned for again, or its row is gone")
	}
}

// A relay had lost its sessions, and was late, but lives. It has its row and its leases again with its next heartbeat.
func TestARelayThatWasTakenForGoneHasItsLeasesAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	late, goOn := b.leftBehind(t)
	beat(t, r)
	isGone := func() bool { return slices.Contains(r.followUps.exclusions().gone, late.token) }
	if !isGone() {
		t.Fatal("it is not gone")
	}
	goOn()
	for _, relay := range []*Relay{late, r} {
		beat(t, relay)
	}
	if isGone() {
		t.Error("it is gone for ever")
	}
	r.scanDue(t, claimed)
	if len(claimed) != 0 {
		t.Error("the leases of a relay that lives are ignored")
	}
}

// A relay that has found another one without its session looks again when that one is gone.
func TestTheNextHeartbeatFindsAKilledRelay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, _ := b.handedOver(t)
	killed, _ := b.leftBehind(t)
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '3600 ms' WHERE token = '`+killed.token+`'`)
	beat(t, r)
	const least = queue.HeartbeatEvery / 2 // of a pause without a reason
	if pause := r.nextHeartbeat(); pause >= least {
		t.Errorf("the next heartbeat is in %v", pause)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if r.writeHeartbeat(cancelled, false) == nil {
		t.Fatal("a heartbeat has an answer")
	}
	if in := r.registration.goneIn(); in != 0 {
		t.Errorf("after a failed heartbeat another relay is gone in %v", in)
	}
}

// The session of a failed heartbeat has ended. The other relays may take the relay for gone, and send its events a second time,
// until its next heartbeat. So that one comes soon. While all fail, they come less and less often.
func TestAFailedHeartbeatIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, _ := b.handedOver(t)
	const usual = queue.HeartbeatEvery / 2 // the least pause after an answer
	beat(t, r)
	if pause := r.nextHeartbeat(); pause < usual {
		t.Errorf("after an answer the next heartbeat is in %v", pause)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for failures := range 20 {
		if r.writeHeartbeat(cancelled, false) == nil {
			t.Fatal("a heartbeat has an answer")
		}
		most := min(queue.HeartbeatEvery, r.options.OutageBackoff.Base<<failures)
		if pause := r.nextHeartbeat(); pause > most {
			t.Errorf("after %d failures the next heartbeat is in %v, want %v at most", failures+1, pause, most)
		}
	}
	beat(t, r)
	if pause := r.nextHeartbeat(); pause < usual {
		t.Errorf("after the failures have ended the next heartbeat is in %v", pause)
	}
}

// A new relay does not wait for its first planned heartbeat either.
func TestANewRelayLooksForAKilledOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	killed, _ := b.leftBehind(t)
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '3600 ms' WHERE token = '`+killed.token+`'`)
	r := b.newRelay(t)
	r.register(t.Context(), &claimSchedule{})
	if len(r.wakeHeartbeats) != 1 {
		t.Error("nothing plans the next heartbeat")
	}
}

// The database stalls, and a relay begins. Its first heartbeat fails, as do those of the others, which live.
func TestNoRelayIsGoneForANewOneAfterAStall(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.leftBehind(t)
	r := b.newRelay(t)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if r.writeHeartbeat(cancelled, false) == nil {
		t.Fatal("a heartbeat has an answer")
	}
	beat(t, r)
	if e := r.followUps.exclusions(); len(e.gone) != 0 || len(e.alive) != 1 {
		t.Errorf("gone %v, alive %v", e.gone, e.alive)
	}
}

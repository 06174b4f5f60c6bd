package outbox

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The tests of this file are histories that an exhaustive search through a model of the relays has found.
// In all of them a topic is paused while a relay looks for events to probe it with.

// A search for probes leases an event, and its answer is lost. A claim that was sent before the pause leaves the lease alone, as
// one of this relay. When the topic resumes, nothing but the low of the search covers the event.
func TestALostSearchForProbesIsFollowedByAScan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	b.append(t, "a", 1, 1)
	todo := r.followUps.take(1)
	claim := r.claimLimits(todo.exclusions)
	p := r.pauses["video"]
	outAndDue(p)
	if found, _, _, err := r.candidates(t.Context(), p); err != nil || len(found.Batches) != 1 {
		t.Fatal(found.Batches, err)
	}
	r.claimLost(errors.New("no answer"))
	c, err := r.queue.ClaimNew(t.Context(), claim, todo.seen, nil)
	if err != nil || len(c.Batches) != 0 || c.Skipped {
		t.Fatal(c, err)
	}
	r.followUps.claimed(c, todo, todo.seen)
	p.resumeIdle(p.state)
	r.followUps.topicResumed()
	if !b.isClaimedLater(t, r, claimed) {
		t.Error("nothing looks for the event")
	}
}

// The low of a relay covers a search for probes until it ends, also between its pages. Otherwise a later page may lease an event
// that no row in the table of relays covers.
func TestTheLowCoversASearchForProbesOfSeveralPages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	open, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Rollback(t.Context()) }()
	if err := Append(t.Context(), open, nil, event("open", 1)); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `SELECT pg_current_xact_id()`)
	r.followUps.seen = snapshotNow(t, b) // a page for the open transaction, and one for the later ones
	p := r.pauses["video"]
	outAndDue(p)
	r.probeTopic(t.Context(), p, p.startProbe(), claimed)
	if len(p.scan.parts) == 0 {
		t.Fatalf("the search from %s had one page", p.scan.low)
	}
	begun := p.scan.low
	if err := open.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.followUps.seen = snapshotNow(t, b)
	if low := r.followUps.low(r.inFlight); low != begun {
		t.Errorf("the low is %s between two pages of a search from %s", low, begun)
	}
}

// A search for probes ends with the pause. The next pause begins another one, because nothing covers the former one any more.
func TestASearchForProbesEndsWithThePause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	p := r.pauses["video"]
	outAndDue(p)
	p.scan.low, p.scan.parts = queue.Beginning, queue.Beginning.Since()
	p.scan.state = p.state
	p.resumeIdle(p.state)
	r.followUps.topicResumed()
	outAndDue(p)
	r.probeTopic(t.Context(), p, p.startProbe(), claimed)
	if p.scan.low == queue.Beginning {
		t.Error("the search of the former pause goes on")
	}
}

func snapshotNow(t *testing.T, b *bench) (now queue.TxSnapshot) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `SELECT pg_current_snapshot()::text`).Scan(&now)
	})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

package outbox

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
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
	r.leasesCandidate(t, p)
	r.searchFailed(t.Context(), p, p.state, errors.New("no answer"))
	r.followUps.endSearch()
	c, err := r.queue.ClaimNew(t.Context(), claim, todo.seen, nil)
	if err != nil || len(c.Batches) != 0 || c.Skipped {
		t.Fatal(c, err)
	}
	r.followUps.claimEnded(c, todo, todo.seen)
	p.resumeIdle(p.state)
	r.followUps.topicResumed(p.types)
	if !b.isClaimedLater(t, r, claimed) {
		t.Error("nothing looks for the event")
	}
}

// A search for probes begins again if the relay's low does not cover it any more. Otherwise a later page may lease an event that no
// row in the table of relays covers.
func TestASearchForProbesThatIsNotCoveredBeginsAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	open := pgtest.Begin(t, b.db)
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
		t.Fatalf("the search from %s had one page", p.scan.low.snapshot)
	}
	begun := p.scan.low.snapshot
	pgtest.End(t, open.Commit)
	r.followUps.seen = snapshotNow(t, b)
	r.probeTopic(t.Context(), p, p.startProbe(), claimed)
	if low := r.followUps.low(r.inFlight); low != begun && p.scan.low.snapshot == begun {
		t.Errorf("the low is %s, and a search from %s goes on", low, begun)
	}
}

// A search for probes ends with the pause. The next pause begins another one, because nothing covers the former one any more.
func TestASearchForProbesEndsWithThePause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	p := r.pauses["video"]
	outAndDue(p)
	p.scan.low.snapshot, p.scan.parts = queue.Beginning, queue.Beginning.Since()
	p.resumeIdle(p.state)
	r.followUps.topicResumed(p.types)
	outAndDue(p)
	r.probeTopic(t.Context(), p, p.startProbe(), claimed)
	if p.scan.low.snapshot == queue.Beginning {
		t.Error("the search of the former pause goes on")
	}
}

// leasesCandidate sends the pages of a search until one has leased an event: a search has a page for each transaction that is open
// anywhere on the server. The answer of the last page is still on its way.
func (r *Relay) leasesCandidate(t *testing.T, p *topicPause) {
	t.Helper()
	for {
		found, _, _, err := r.candidates(t.Context(), p)
		switch {
		case err != nil:
			t.Fatal(err)
		case len(found.Batches) == 1:
			return
		case len(p.scan.parts) == 0:
			t.Fatal("the search has found nothing")
		}
		r.followUps.endSearch()
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

// A request that was sent before the pause succeeds and ends it, while a search for probes is on its way. The scan that follows
// leaves the event that the search has leased alone, as one of this relay. The low covers the event until the answer of the search
// is there. If the answer is lost, a scan looks for the event once more.
func TestASearchForProbesThatOutlastsThePause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	b.append(t, "a", 1, 1)
	p := r.pauses["video"]
	outAndDue(p)
	state := p.startProbe()
	r.leasesCandidate(t, p)
	p.succeeded("b")
	r.followUps.topicResumed(p.types)
	r.claim(t, claimed)
	for r.scanDue(t, claimed) {
	}
	r.claim(t, claimed)
	if low := r.followUps.low(r.inFlight); low != p.scan.low.snapshot {
		t.Errorf("the low is %s while a search from %s is on its way", low, p.scan.low.snapshot)
	}
	r.searchFailed(t.Context(), p, state, errors.New("no answer"))
	r.claim(t, claimed)
	if !b.isClaimedLater(t, r, claimed) {
		t.Error("nothing looks for the event")
	}
}

// A batch that the sweep has found is in flight while a search for probes begins. The search, and the searches after it, do
// not read the whole table for that reason.
func TestASearchForProbesReadsNoMoreBecauseOfTheSweep(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	p := r.pauses["video"]
	outAndDue(p)
	h := &leasedBatch{events: queue.Batch{{Event: event("swept", 1)}}, low: datedLow{queue.Beginning, r.followUps.met.life}}
	r.inFlight.batches[h.events.Head()] = h
	r.probeTopic(t.Context(), p, p.startProbe(), claimed)
	delete(r.inFlight.batches, h.events.Head())
	if low := r.followUps.low(r.inFlight); low == queue.Beginning || p.scan.low.snapshot == queue.Beginning {
		t.Errorf("the search began at %s, and the low is %s after the sweep", p.scan.low.snapshot, low)
	}
}

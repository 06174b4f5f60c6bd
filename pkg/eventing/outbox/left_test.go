package outbox

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// scanOwed runs the scan that is owed, whenever it is due, and reports whether one was.
func (r *Relay) scanOwed(t *testing.T, claimed chan<- *hold) bool {
	t.Helper()
	s, from := newScans(), r.agenda.beginScan()
	if from == "" {
		return false
	}
	s.begun(from)
	for len(s.parts) > 0 {
		if !r.flight.reserve(byScan) {
			t.Fatal("no room for a claim")
		}
		if err := r.scan(t.Context(), s, page, claimed); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// A topic comes back while a claim that leaves its events alone is on its way, and
// while the list of closed topics is being made.
func TestATopicThatIsBackMeanwhileIsLookedAfter(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	b := newBenchOn(t, pg)
	b.topics["other"] = "projects/test/topics/other"
	r, claimed := b.newRelay(t), make(chan *hold, 10)
	var s claims
	r.turn(t.Context(), &s, claimed) // it joins
	r.scanOwed(t, claimed)
	c := r.circuits["video"]
	c.trip(causeOutage)
	c.retryAt = time.Now().Add(time.Hour)
	b.append(t, "a", 1, 1)
	tx, err := pg.Pool(t, pg.Admin).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE app.outbox IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); r.turn(t.Context(), &s, claimed) }()
	b.poll(t, func() bool { closed, _ := r.agenda.leaving(); return len(closed) == 1 }, "no claim is on its way")
	if c.succeeded("b") {
		r.agenda.resumed()
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-done
	s.pollAt = time.Now().Add(time.Hour)
	r.turn(t.Context(), &s, claimed)
	r.scanOwed(t, claimed)
	if len(claimed) != 1 {
		t.Error("nobody looks for what a claim left alone while its topic came back")
	}
}

// lossy is a connection that can lose an answer, and with it the connection.
type lossy struct {
	net.Conn
	lose *atomic.Bool
}

func (l lossy) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 && l.lose.CompareAndSwap(true, false) {
		return 0, errors.Join(io.ErrUnexpectedEOF, l.Close())
	}
	return n, err
}

// A claim commits and its answer is lost: the relay has leased what it does not know
// of. It takes those leases for nobody's, until they have run out.
func TestAClaimWhoseAnswerIsLostIsLookedAfter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var lose atomic.Bool
	config := b.db.Config()
	dial := config.ConnConfig.DialFunc
	config.MaxConns = 1
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return lossy{conn, &lose}, err
	}
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	direct := b.db
	b.db = db
	r, claimed := b.newRelay(t), make(chan *hold, 10)
	b.db = direct
	var s claims
	r.turn(t.Context(), &s, claimed) // it joins
	r.scanOwed(t, claimed)
	r.turn(t.Context(), &s, claimed) // a claim, which prepares the statement
	b.append(t, "a", 1, 1)
	lose.Store(true)
	s = claims{}
	r.turn(t.Context(), &s, claimed)
	if n := b.count(t, leased); s.failures != 1 || n != 1 || len(claimed) != 0 {
		t.Fatalf("%d failures, %d leases, %d claimed", s.failures, n, len(claimed))
	}
	s = claims{}
	r.turn(t.Context(), &s, claimed)
	for range 2 { // a scan for another reason comes before the lease has run out
		if !r.scanOwed(t, claimed) {
			t.Fatal("nobody looks for what was leased with an answer that was lost")
		}
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '21 s'`)
	r.scanOwed(t, claimed)
	if len(claimed) != 1 {
		t.Error("what was leased with an answer that was lost is not claimed when that lease has run out")
	}
}

// A claim's limits may cut its last run without keeping any head out. What is behind
// such a run was visible to the claim all the same.
func TestWhatACutRunLeavesIsCovered(t *testing.T) {
	t.Parallel()
	for name, who := range map[string]queue.Claim{
		"events": {Events: 3, PerAggregate: 100, Bytes: 1000},
		"bytes":  {Events: 100, PerAggregate: 100, Bytes: 3},
	} {
		f := newFlight()
		f.reserved++
		h := f.add(batch{Claimed: queue.Claimed{Runs: []queue.Run{run(3, 1)}, Seen: "50:50:"}, who: who, sent: time.Now(), low: "10:10:"})
		if h[0].next != "10:10:" {
			t.Errorf("%s: behind the run nothing was visible to %s, want 10:10:", name, h[0].next)
		}
	}
}

// A settle commits and its answer is lost; then its first part is written once more.
// What follows is behind all that is published.
func TestWhatFollowsIsBehindAllThatIsPublished(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *hold, 10)
	b.append(t, "a", 1, 4)
	b.claimAll(t, r, claimed)
	h := <-claimed
	whole := queue.Outcome{Run: h.run, Published: 4}
	if _, err := r.queue.Settle(t.Context(), r.token, []queue.Outcome{whole}); err != nil {
		t.Fatal(err)
	}
	b.append(t, "a", 5, 5)
	part := queue.Outcome{Run: h.run, Published: 2}
	got, err := r.queue.Settle(t.Context(), r.token, []queue.Outcome{part})
	if err != nil || got.Lost != 1 || !got.Followed {
		t.Errorf("settled %+v, %v", got, err)
	}
	c, err := r.queue.Fresh(t.Context(), r.claim(nil, nil), "1000000:1000000:", []queue.Position{part.Run[:2].Last()})
	if err != nil || len(c.Runs) != 1 || c.Runs[0][0].Version != 5 {
		t.Errorf("claimed %+v, %v, want version 5", c.Runs, err)
	}
}

// A relay meets another server after a beat of which it has no answer: snapshots of the
// first mean nothing there.
func TestAnotherServerAfterAnUnknownBeat(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *hold, 10)
	var s claims
	r.turn(t.Context(), &s, claimed) // it joins
	r.joining.server = r.joining.server.Add(-time.Hour)
	r.agenda.since = "1000000:1000000:"
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if r.writeBeat(cancelled, false) == nil {
		t.Fatal("a beat without an answer has none")
	}
	if err := r.writeBeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if r.agenda.since == "1000000:1000000:" {
		t.Error("new events are those since a snapshot of another server")
	}
}

// Candidates for a probe that waited for a retry go back, and are found as before:
// nobody has to look through the whole table for them.
func TestRetriesThatGoBackAreFoundAsRetries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *hold, 10)
	var s claims
	r.turn(t.Context(), &s, claimed) // it joins
	r.scanOwed(t, claimed)
	b.append(t, "a", 1, 1)
	b.append(t, "b", 1, 1)
	r.turn(t.Context(), &s, claimed)
	for range 2 {
		h := <-claimed
		r.settleAll(t, landing{h, report{err: errors.New("out"), requests: 1}})
	}
	b.exec(t, `UPDATE outbox SET next_retry_at = now()`)
	c := r.circuits["video"]
	c.trip(causeOutage)
	c.retryAt = time.Now()
	r.probe(t.Context(), claimed)
	if len(claimed) != 2 {
		t.Fatalf("%d candidates", len(claimed))
	}
	if low := r.flight.low(); low == queue.Beginning {
		t.Error("what is found as a retry has others look through the whole table")
	}
	r.agenda.retrying() // forgets those that were put off before
	for range 2 {
		r.settleAll(t, landing{hold: <-claimed})
	}
	if low := r.agenda.low(r.flight); low == queue.Beginning {
		t.Error("what goes back to its retry has the relay look through the whole table")
	}
	if r.agenda.news().retryAt.IsZero() {
		t.Error("nobody looks for the retries")
	}
}

// A probe takes one version of an aggregate that waited for a retry. What is behind it is
// the next retry, and nobody has to look for it through the whole table.
func TestWhatIsBehindAProbeIsTheNextRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.joined(t)
	b.append(t, "a", 1, 2)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE version = 1`)
	outAndDue(r.circuits["video"])
	r.probe(t.Context(), claimed)
	if len(claimed) != 1 {
		t.Fatalf("%d candidates", len(claimed))
	}
	r.settleAll(t, landing{<-claimed, report{published: 1}})
	if low := r.agenda.low(r.flight); low == queue.Beginning {
		t.Error("what is behind a probe has others look through the whole table")
	}
	b.append(t, "beside", 1, 1)
	heir := b.newRelay(t) // it has heard nothing of the first
	got, _, err := heir.queue.Retries(t.Context(), heir.claim(nil, nil))
	if err != nil || len(got.Runs) != 1 || got.Runs[0][0].Version != 2 || !got.Runs[0][0].Retry {
		t.Errorf("another relay claims %+v, %v, want version 2 as a retry", got.Runs, err)
	}
}

// A claim that waits for a scan to have its turn is told when that has found nothing.
func TestATurnThatTakesNothingPassesOn(t *testing.T) {
	t.Parallel()
	f := newFlight()
	f.events = maxEvents
	if f.last = byClaim; f.reserve(byClaim) || f.reserve(byScan) {
		t.Fatal("room beyond the bound")
	}
	f.events = 0 // all has landed
	f.tell()
	<-f.landed
	if f.reserve(byClaim) || !f.reserve(byScan) {
		t.Fatal("it is the scan's turn")
	}
	f.add(batch{})
	select {
	case <-f.landed:
	default:
		t.Error("the claim is not told that it has room")
	}
	if !f.reserve(byClaim) {
		t.Error("the claim has no room")
	}
}

// What was behind a retry when it was claimed is found with it, and what has come since
// was not visible to the claim, whatever cut the run.
func TestWhatIsBehindARetryIsCovered(t *testing.T) {
	t.Parallel()
	f := newFlight()
	who := queue.Claim{Events: 100, PerAggregate: 3, Bytes: 1000}
	retry := run(3, 1)
	retry[0].Retry = true
	for _, low := range []queue.Snapshot{"", "10:10:"} { // claimed as a retry, or by a scan
		f.reserved++
		h := f.add(batch{Claimed: queue.Claimed{Runs: []queue.Run{retry}, Seen: "50:50:"}, who: who, sent: time.Now(), low: low})
		if got := f.low(); got != "50:50:" || h[0].next != got {
			t.Errorf("low %q, behind the run %q", got, h[0].next)
		}
		f.remove(h)
	}
}

package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// scale is the size of a history: its relays, its events, and the kills of relays.
type scale struct {
	relays, aggregates, events, kills int
	// impatient ends a killed relay's leases at once.
	impatient bool
	// stop is the longest time for which rows are locked, or a session or a relay is stopped.
	stop time.Duration
	// sessions says that sessions of the database are stopped, too. A stopped session may hold up the
	// database of other tests.
	sessions bool
}

// TestHistory runs relays in processes of their own on one outbox while they are killed
// with SIGKILL, the broker fails and restarts, and leases run out under living relays. Commits are slow
// now and then, rows are locked, relays and their sessions stand still for a while, and living relays are taken for gone. The broker must
// have taken each version of each aggregate, none for the first time before its predecessor. The processes
// of the relays write, too, and hand their events over to their relays.
//
// LOCKSTEP_FULL=1 takes the full measure; `make crash` sets it.
func TestHistory(t *testing.T) {
	t.Parallel()
	c := scale{relays: 4, aggregates: 40, events: 8_000, kills: 4, impatient: true, stop: time.Second}
	if os.Getenv("LOCKSTEP_FULL") != "" {
		c = scale{relays: 8, aggregates: 200, events: 100_000, kills: 40, stop: 8 * time.Second, sessions: true}
	}
	h := newHistoryRun(t, c)
	h.slowCommits(t)
	h.run(t, false)
	h.faults.Wait()
	h.eventually(t, 0, unpublished)
	h.broker.late.Wait()
	records := h.records(t)
	records = append(records, h.shared(t)...)
	history.Require(t, records)
	if n := h.count(t, attempted); n != 0 {
		t.Errorf("faults of the broker spent %d attempts", n)
	}
	handed, err := os.ReadFile(h.path + handedFile)
	if err != nil || len(handed) == 0 {
		t.Errorf("%d events were handed over, %v", len(handed), err)
	}
	t.Logf("%d events handed over; %d aggregates, %d relays, %d kills, %d stops, %d locks, %d mistakes: %s",
		len(handed), c.aggregates, c.relays, c.kills, h.stops, h.locks, h.mistakes, history.Summarize(records))
}

// TestHistoryDetectsDisorderOfSkipLocked has relays that claim rows with SKIP LOCKED and nothing more:
// the same history must show that they break the order.
func TestHistoryDetectsDisorderOfSkipLocked(t *testing.T) {
	t.Parallel()
	h := newHistoryRun(t, scale{relays: 4, aggregates: 10, events: 4_000})
	h.run(t, true)
	h.poll(t, func() bool {
		sent, published := false, false
		for _, v := range history.Check(h.records(t)) {
			sent = sent || v.Promise == "P3" && v.Records[1].Kind == history.Send
			published = published || v.Promise == "P3" && v.Records[1].Kind == history.Publish
		}
		return sent && published
	}, "no version was sent, and none taken, before its predecessor")
}

// historyRun is one run of the test, with its events in a log that the relays share.
type historyRun struct {
	*bench
	scale
	url    string
	admin  *pgxpool.Pool
	log    *history.Log
	path   string
	broker *chaos
	relays []*process.Process
	last   []int64 // of each aggregate, committed

	stops, locks, mistakes int

	faults sync.WaitGroup // that will end by themselves
}

func newHistoryRun(t *testing.T, c scale) *historyRun {
	t.Helper()
	pg := pgtest.New(t)
	log, path := history.New(t)
	return &historyRun{
		bench: &bench{db: pg.Pool(t, pg.URL)}, scale: c, url: pg.URL, admin: pg.Pool(t, pg.Admin), log: log, path: path,
		broker: newChaos(t, log), relays: make([]*process.Process, c.relays), last: make([]int64, c.aggregates),
	}
}

func (h *historyRun) records(t *testing.T) []history.Record {
	t.Helper()
	records, err := h.log.Records()
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func aggregate(i int) string { return fmt.Sprint("aggregate-", i) }

// run writes all events, and disturbs until they are written.
func (h *historyRun) run(t *testing.T, byRows bool) {
	t.Helper()
	for i := range h.relays {
		h.relays[i] = h.spawn(t, byRows)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		h.write(t)
	}()
	if byRows {
		<-written
		return
	}
	dice := rand.New(rand.NewPCG(6, 7)) // seeded, so that a failure comes again
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for kills := h.kills; kills > 0; {
		<-tick.C
		switch dice.IntN(12) {
		case 0:
			kills--
			h.kill(t, dice.IntN(len(h.relays)))
		case 1:
			h.broker.restart(t)
		case 2, 3:
			h.expire(t, 0.2) // under a relay that is alive
		case 4, 5:
			h.disturb(t, dice)
		default:
			h.exec(t, `SELECT pg_notify('outbox.video', 'the writers')`)
		}
	}
	<-written
	if err := os.WriteFile(h.path+endFile, nil, 0o600); err != nil {
		t.Error(err)
	}
	for _, p := range h.relays { // a stopped process goes on, and then sees the file
		h.poll(t, func() bool { return exists(h.path + endFile + fmt.Sprint(p.PID())) }, "a relay's process does not stop writing")
	}
}

// shared are the events of the relays' processes. A process may be killed between a commit and a
// record, so the table has the records.
func (h *historyRun) shared(t *testing.T) []history.Record {
	t.Helper()
	rows, err := h.db.Query(t.Context(), `
		SELECT 'write', aggregate_id, epoch, version, id::text FROM outbox WHERE aggregate_id LIKE 'shared-%' ORDER BY version`)
	if err != nil {
		t.Fatal(err)
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r history.Record, err error) {
		err = row.Scan(&r.Kind, &r.Aggregate, &r.Epoch, &r.Version, &r.Event)
		return r, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// kill replaces a relay. Its leases end after 20 s, or at once.
func (h *historyRun) kill(t *testing.T, i int) {
	t.Helper()
	if err := h.relays[i].Stop(syscall.SIGKILL, patience); err != nil {
		t.Error(err)
	}
	h.relays[i] = h.spawn(t, false)
	if h.impatient {
		h.expire(t, 1)
	}
}

// expire ends a share of the leases. It skips rows that a relay has locked: waiting for
// them in any order could be a deadlock.
func (h *historyRun) expire(t *testing.T, share float64) {
	t.Helper()
	h.exec(t, fmt.Sprintf(`
		UPDATE outbox SET locked_at = now() - interval '1 hour'
		 WHERE id IN (SELECT id FROM outbox WHERE locked_at IS NOT NULL AND random() < %g FOR UPDATE SKIP LOCKED)`, share))
}

// write appends the events in transactions of one to five versions each. Every
// aggregate has one writer, as if its row were locked.
func (h *historyRun) write(t *testing.T) {
	const writers = 4
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			dice := rand.New(rand.NewPCG(8, uint64(w)))
			for left := h.events / writers; left > 0; {
				i := dice.IntN(h.aggregates/writers)*writers + w
				n := min(left, 1+dice.IntN(5))
				if err := h.commit(t.Context(), h.db, i, n); err != nil {
					t.Error(err)
					return
				}
				left -= n
			}
		})
	}
	writing.Wait()
}

func (h *historyRun) commit(ctx context.Context, db *pgxpool.Pool, i, n int) error {
	events := make([]eventing.Event, n)
	for k := range events {
		events[k] = event(aggregate(i), h.last[i]+int64(k)+1)
	}
	if err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return Append(ctx, tx, nil, events...) }); err != nil {
		return err
	}
	h.last[i] += int64(n)
	written := make([]history.Record, n)
	for k, e := range events {
		written[k] = history.Record{
			Kind: history.Write, At: time.Now(), Aggregate: e.AggregateID, Epoch: e.Epoch, Version: e.Version, Event: e.ID.String(),
		}
	}
	return h.log.Add(written...)
}

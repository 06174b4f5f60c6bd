package inbox

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	records "example.com/lockstep/internal/history"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

const (
	// quickHistories is how many histories make test has time for. LOCKSTEP_HISTORIES=10000
	// is the full form.
	quickHistories = 150
	// historyWorkers run histories at once. A history mostly waits: a repair is a
	// second after the one before.
	historyWorkers = 24
	// connsPerHistory is one for each of its two consumers, and one for each of the
	// brownouts and locks that they meet: none of those waits for a connection.
	connsPerHistory = 7
)

// TestHistories puts random lives of items (created, changed, moved between shelves,
// deleted, restored to an earlier time in a new epoch, taken into a new epoch) through random
// deliveries: lost, from before the subscription, repeated, reordered, replayed, applied by two consumers at once, after a purge of the
// inbox, with rows that another transaction has locked, with a database that takes no
// writes for a while, with events that repeat the id of another, with pages of a backfill
// that the owner read at one time and that are written at another, with pages of a rebuild
// that fill a shadow, and with the consumer, the backfill or the rebuild dying. At the end the read model equals the owner's state, counters
// included. On the way no version went back, no event's effect was committed twice, and no
// event but those with a repeated id was at fault.
func TestHistories(t *testing.T) {
	t.Parallel()
	count := quickHistories
	if s := os.Getenv("LOCKSTEP_HISTORIES"); s != "" {
		var err error
		if count, err = strconv.Atoi(s); err != nil {
			t.Fatalf("LOCKSTEP_HISTORIES: %v", err)
		}
	}
	b := newHistoryBench(t)
	var next atomic.Int64
	var met disturbances
	var workers sync.WaitGroup
	for range historyWorkers {
		workers.Go(func() {
			for seed := next.Add(1); seed <= int64(count) && !t.Failed(); seed = next.Add(1) {
				newHistory(t, b, uint64(seed), &met).run(t)
			}
		})
	}
	workers.Wait()
	t.Log(&met)
	if !t.Failed() && count >= quickHistories && met.least() == 0 {
		t.Error("the histories do not meet every kind of disturbance")
	}
}

// newHistoryBench is a bench with items, and with connections for all workers.
func newHistoryBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), itemSchema)
	config, err := pgxpool.ParseConfig(b.pg.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = historyWorkers * connsPerHistory
	// On a starved machine a brownout takes longer than the role's limits, and so do the transactions of
	// pages. If the database ended a brownout's idle session, the time limits after that would count.
	for _, limit := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		config.ConnConfig.RuntimeParams[limit] = "0"
	}
	if b.db, err = pgxpool.NewWithConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.db.Close)
	return b
}

// The steps at which a consumer may die.
const (
	living = iota
	beforeLock
	beforeWrite
	beforeCommit
	afterCommit // before any ack
	beforeRepair
	afterRepair
	deaths
)

type history struct {
	*bench
	name    string
	rnd     *rand.Rand
	lives   map[string]*life
	pending []eventing.Event
	// happened are the records of this test; the database has those of the committed
	// transactions.
	happened []records.Record
	rounds   int
	// repeats are events with the ids of others; each came later than the first event
	// with its id.
	repeats []eventing.Event
	met     *disturbances
	// subscribed is the begin of the subscription, and pages are those of the backfill that
	// are to be written.
	subscribed time.Time
	pages      []page
	// shadowPages are those of a rebuild that are to be written; see judgeShadow.
	shadowPages []page
	rebuilds    bool
}

func newHistory(t *testing.T, b *bench, seed uint64, met *disturbances) *history {
	t.Helper()
	h := &history{
		bench: b, name: fmt.Sprintf("h%d", seed), rnd: rand.New(rand.NewPCG(seed, 7)),
		lives: map[string]*life{}, met: met,
	}
	for i := range 1 + h.rnd.IntN(3) {
		id := fmt.Sprintf("%s-%d", h.name, i)
		h.lives[id] = h.live(t, id)
		h.happened = append(h.happened, h.lives[id].written()...)
		last := h.lives[id].last()
		for _, e := range h.lives[id].all() {
			if e.ID == last.EventID || h.rnd.IntN(7) > 0 { // else lost
				h.pending = append(h.pending, e)
			}
			for h.rnd.IntN(3) == 0 {
				h.pending = append(h.pending, e)
			}
		}
	}
	if h.rnd.IntN(4) > 0 {
		h.shuffle()
	}
	h.backfill()
	h.rebuild()
	h.rebuilds = len(h.shadowPages) > 0
	return h
}

// live is the life of an item, with everything that its owner meets.
func (h *history) live(t *testing.T, id string) *life {
	t.Helper()
	l := h.liveOnce(t, id)
	h.fail(t, id, l)
	h.newEpoch(t, id, l)
	return l
}

// fail lets one in four owners lose commits, and go on.
func (h *history) fail(t *testing.T, id string, l *life) {
	t.Helper()
	if h.rnd.IntN(4) > 0 || l.last().Epoch > 1 {
		return
	}
	after := 1 + h.rnd.IntN(len(l.events))
	if l.states[after-1].Deleted && l.events[0].Type != "ItemPut" {
		return // nothing happens to it any more that would show the loss
	}
	l.lose(after)
	h.goOn(t, id, l, 1+h.rnd.IntN(5))
}

// goOn adds up to n events of any kind that the item allows.
func (h *history) goOn(t *testing.T, id string, l *life, n int) {
	t.Helper()
	for range n {
		p := itemPayload{Shelf: new(h.name + "-shelf-0"), Label: new(strconv.Itoa(h.rnd.Int()))}
		switch {
		case l.events[0].Type == "ItemPut":
			l.happen(t, id, "ItemPut", p)
		case l.last().Deleted:
			return
		case h.rnd.IntN(4) == 0:
			l.happen(t, id, "ItemDeleted", itemPayload{})
		default:
			l.happen(t, id, "ItemUpdated", p)
		}
	}
}

func (h *history) liveOnce(t *testing.T, id string) *life {
	t.Helper()
	l := &life{}
	shelf := func() *string { return new(fmt.Sprintf("%s-shelf-%d", h.name, h.rnd.IntN(2))) }
	if h.rnd.IntN(4) == 0 { // one that comes and goes
		for range 1 + h.rnd.IntN(7) {
			if len(l.states) > 0 && !l.last().Deleted && h.rnd.IntN(2) == 0 {
				l.happen(t, id, "ItemDeleted", itemPayload{})
				continue
			}
			l.happen(t, id, "ItemPut", itemPayload{Shelf: shelf(), Label: new(strconv.Itoa(h.rnd.Int()))})
		}
		return l
	}
	l.happen(t, id, "ItemCreated", itemPayload{Shelf: shelf(), Label: new("new")})
	epoch := int64(1)
	for range h.rnd.IntN(7) {
		switch {
		case l.last().Deleted || epoch == 1 && h.rnd.IntN(10) == 0:
			// The owner was restored to before, and lives on in a new epoch.
			back := l.states[h.rnd.IntN(len(l.states))]
			if epoch == 2 || back.Deleted {
				return l
			}
			epoch = 2
			l.begin(back)
			l.happen(t, id, "ItemUpdated", itemPayload{Shelf: shelf()})
		case h.rnd.IntN(4) == 0:
			l.happen(t, id, "ItemDeleted", itemPayload{})
		case h.rnd.IntN(2) == 0:
			l.happen(t, id, "ItemUpdated", itemPayload{Shelf: shelf()})
		default:
			l.happen(t, id, "ItemUpdated", itemPayload{Label: new(strconv.Itoa(h.rnd.Int()))})
		}
	}
	return l
}

func (h *history) shuffle() {
	h.rnd.Shuffle(len(h.pending), func(i, j int) { h.pending[i], h.pending[j] = h.pending[j], h.pending[i] })
}

func (h *history) run(t *testing.T) {
	t.Helper()
	replayed, purged := h.rnd.IntN(2) == 0, h.rnd.IntN(2) == 0
	for ; len(h.pending)+len(h.pages)+len(h.shadowPages) > 0; h.rounds++ {
		switch {
		case !purged && h.rounds > 1:
			purged = true
			h.purge(t)
		case !replayed && h.rounds > 2:
			replayed = true
			for _, l := range h.lives {
				h.pending = append(h.pending, slices.DeleteFunc(l.all(), func(e eventing.Event) bool { return !h.receives(e) })...)
			}
			h.shuffle()
		}
		if purged && len(h.repeats) == 0 && h.rnd.IntN(3) == 0 {
			h.repeatID(t)
		}
		one := h.take()
		death := h.death()
		var other []eventing.Event
		if h.rnd.IntN(3) == 0 {
			other = append(h.take(), one[:h.rnd.IntN(len(one)+1)]...)
		}
		first, second := h.picker(), h.picker()
		var both sync.WaitGroup
		var left []eventing.Event
		both.Go(func() { left = h.round(t, one, death, first) })
		var unfilled []page
		if len(h.pages) > 0 && (len(h.pending) == 0 || h.rnd.IntN(2) == 0) {
			next, dies := h.pages[0], h.death()
			h.pages = h.pages[1:]
			both.Go(func() { unfilled = h.fillNext(t, next, dies) })
		}
		var unmirrored []page
		if len(h.shadowPages) > 0 && (len(h.pending) == 0 || h.rnd.IntN(2) == 0) {
			next, dies := h.shadowPages[0], h.death()
			h.shadowPages = h.shadowPages[1:]
			both.Go(func() { unmirrored = h.fillShadow(t, next, dies) })
		}
		if len(other) > 0 {
			h.pending = append(h.pending, h.round(t, other, living, second)...)
		}
		both.Wait()
		h.pending, h.pages = append(h.pending, left...), append(h.pages, unfilled...)
		h.shadowPages = append(h.shadowPages, unmirrored...)
	}
	h.judge(t)
	if h.rebuilds {
		h.judgeShadow(t)
	}
}

// death is the step at which the next process dies; most live.
func (h *history) death() int {
	if h.rounds > 30 {
		return living // each life ends
	}
	return max(0, h.rnd.IntN(deaths*3)-deaths*2)
}

// picker draws for a goroutine of its own.
func (h *history) picker() func(int) int {
	rnd := rand.New(rand.NewPCG(h.rnd.Uint64(), 3))
	var mu sync.Mutex
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
}

func (h *history) take() []eventing.Event {
	n := min(len(h.pending), 1+h.rnd.IntN(6))
	batch := h.pending[:n:n]
	h.pending = h.pending[n:]
	for _, e := range batch {
		if !h.isRepeat(e) {
			h.happened = append(h.happened, recordOf(records.Deliver, e))
		}
	}
	return batch
}

// round applies batch with a new consumer, and returns the events that are delivered again.
func (h *history) round(t *testing.T, batch []eventing.Event, death int, pick func(int) int) (again []eventing.Event) {
	t.Helper()
	if len(batch) == 0 {
		return nil
	}
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	at := func(step int) error {
		if step == death {
			kill()
			return fmt.Errorf("died: %w", io.ErrUnexpectedEOF)
		}
		return nil
	}
	c := h.consumer(t)
	defer c.metrics.unregister()
	var slow *brownout
	// As many tries as would narrow the batch down to an event that is blamed. Each costs
	// the time limit of the smallest write, so large batches are spared.
	if len(batch) <= 2 && pick(15) == 0 {
		slow = h.startBrownout(t, c, len(batch))
		defer slow.end()
	}
	c.handler = guarded{h.handler(at, pick, slow)}
	var all []*delivery
	for _, e := range batch {
		m := e.Message()
		all = append(all, c.handler.newDelivery(&pubsub.Message{ID: "m", Data: m.Data, Attributes: m.Attributes}))
	}
	if pick(25) == 0 {
		defer h.lock(ctx, t, c, batch[pick(len(batch))].AggregateID)()
	}
	c.process(ctx, mergeDuplicates(all))
	for ctx.Err() == nil && len(c.blocked.byKey) > 0 {
		select {
		case key := <-c.blocked.released:
			c.process(ctx, mergeDuplicates(c.blocked.unblock(key)))
		case <-ctx.Done():
		}
	}
	died := ctx.Err() != nil
	kill()
	c.blocked.all()
	if died {
		return batch // acked ones too: acks get lost
	}
	return nil
}

// mortalItems are items with a death at one of its steps.
type mortalItems struct {
	items

	at func(step int) error
}

func (m mortalItems) Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]item, error) {
	if err := m.at(beforeLock); err != nil {
		return nil, err
	}
	return m.items.Lock(ctx, tx, ids)
}

func (m mortalItems) Upsert(ctx context.Context, tx pgx.Tx, steps []Step[item]) ([]string, error) {
	if err := m.at(beforeWrite); err != nil {
		return nil, err
	}
	return m.items.Upsert(ctx, tx, steps)
}

// handler is that of items, with a death at one of its steps. slow may be nil.
func (h *history) handler(at func(int) error, pick func(int) int, slow *brownout) Handler {
	rows := mortalItems{at: at}
	return &functions{
		decode: decodeItem,
		apply: func(ctx context.Context, tx pgx.Tx, changes []Change) ([]Outcome, error) {
			if err := slow.stall(ctx, tx); err != nil {
				return nil, err
			}
			outcomes, err := applyRecorded(ctx, tx, changes, rows)
			return outcomes, cmp.Or(err, at(beforeCommit))
		},
		repair: func(ctx context.Context, e eventing.Event) error {
			if err := at(beforeRepair); err != nil {
				return err
			}
			s := h.lives[e.AggregateID].since(e, pick)
			err := pgx.BeginFunc(ctx, h.db, func(tx pgx.Tx) error {
				_, err := adoptRecorded(ctx, tx, AdoptChanges[item], rows, time.Time{}, s)
				return err
			})
			return cmp.Or(err, at(afterRepair), Has(rows.Position(s), e, time.Time{}))
		},
		committed: func(...string) { _ = at(afterCommit) },
	}
}

// purge deletes finished rows, as the maintenance does in time.
func (h *history) purge(t *testing.T) {
	t.Helper()
	var forgotten []records.Record
	for _, l := range h.lives {
		for _, e := range l.all() {
			gone, err := h.db.Exec(t.Context(), `DELETE FROM inbox WHERE consumer = $1 AND event_id = $2 AND status = 'done'`, subscription, e.ID)
			if err != nil {
				t.Fatal(err)
			}
			if gone.RowsAffected() > 0 {
				forgotten = append(forgotten, recordOf(records.Forget, e))
			}
		}
	}
	if err := pgx.BeginFunc(t.Context(), h.db, func(tx pgx.Tx) error { return remember(t.Context(), tx, forgotten) }); err != nil {
		t.Fatal(err)
	}
}

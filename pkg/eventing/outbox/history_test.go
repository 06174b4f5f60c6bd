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

	"example.com/lockstep/internal/child"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// carnage says how much is written, by how many it is relayed, and how often they
// are disturbed.
type carnage struct {
	relays, aggregates, events, kills int
	// impatient ends a killed relay's leases at once.
	impatient bool
}

// TestHistory lets relays in processes of their own fight over one outbox while
// they are killed with SIGKILL, the broker fails and restarts, and leases run out
// under living relays. The broker must have taken each version of each aggregate,
// none for the first time before its predecessor.
//
// LOCKSTEP_FULL=1 takes the full measure; `make crash` sets it.
func TestHistory(t *testing.T) {
	t.Parallel()
	c := carnage{relays: 4, aggregates: 40, events: 8_000, kills: 4, impatient: true}
	if os.Getenv("LOCKSTEP_FULL") != "" {
		c = carnage{relays: 8, aggregates: 200, events: 100_000, kills: 40}
	}
	h := newHistory(t, c)
	h.run(t, false)
	h.eventually(t, 0, unpublished)
	h.broker.late.Wait()
	repeats, taken := 0, h.broker.seen()
	for i := range c.aggregates {
		versions := taken[aggregate(i)]
		if err := ordered(versions, h.last[i]); err != nil {
			t.Errorf("aggregate %d: %v", i, err)
		}
		repeats += len(versions) - int(h.last[i])
	}
	if n := h.count(t, attempted); n != 0 {
		t.Errorf("faults of the broker spent %d attempts", n)
	}
	t.Logf("%d events of %d aggregates through %d relays, %d kills: %d repeats", c.events, c.aggregates, c.relays, c.kills, repeats)
}

// TestHistoryBites has relays that claim rows with SKIP LOCKED and nothing more:
// the same history must show that they break the order.
func TestHistoryBites(t *testing.T) {
	t.Parallel()
	h := newHistory(t, carnage{relays: 4, aggregates: 10, events: 4_000})
	h.run(t, true)
	h.poll(t, func() bool {
		for _, versions := range h.broker.seen() {
			if early(versions) {
				return true
			}
		}
		return false
	}, "no version came before its predecessor")
}

// early reports whether a version came before its predecessor.
func early(versions []int64) bool {
	var seen int64
	for _, v := range versions {
		if v > seen+1 {
			return true
		}
		seen = max(seen, v)
	}
	return false
}

type history struct {
	*bench
	carnage
	url    string
	broker *chaos
	relays []*child.Process
	last   []int64 // of each aggregate, committed
}

func newHistory(t *testing.T, c carnage) *history {
	t.Helper()
	pg := pgtest.New(t)
	return &history{
		bench: &bench{db: pg.Pool(t, pg.VideoURL)}, carnage: c, url: pg.VideoURL,
		broker: newChaos(t), relays: make([]*child.Process, c.relays), last: make([]int64, c.aggregates),
	}
}

func aggregate(i int) string { return fmt.Sprint("aggregate-", i) }

// run writes all events, and disturbs until they are written.
func (h *history) run(t *testing.T, byRows bool) {
	t.Helper()
	for i := range h.relays {
		h.relays[i] = spawn(t, h.broker.addr, h.url, byRows)
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
		switch dice.IntN(10) {
		case 0:
			kills--
			h.kill(t, dice.IntN(len(h.relays)))
		case 1:
			h.broker.restart(t)
		case 2, 3:
			h.expire(t, 0.2) // under a relay that is alive
		default:
			h.exec(t, `SELECT pg_notify('outbox.video', 'the writers')`)
		}
	}
	<-written
}

// kill replaces a relay. What it leased is free after 20 s, or at once.
func (h *history) kill(t *testing.T, i int) {
	t.Helper()
	if err := h.relays[i].Stop(syscall.SIGKILL, patience); err != nil {
		t.Error(err)
	}
	h.relays[i] = spawn(t, h.broker.addr, h.url, false)
	if h.impatient {
		h.expire(t, 1)
	}
}

// expire ends a share of the leases. What a relay has in hand is passed over: to wait
// for that in any order could be a deadlock.
func (h *history) expire(t *testing.T, share float64) {
	t.Helper()
	h.exec(t, fmt.Sprintf(`
		UPDATE outbox SET locked_at = now() - interval '1 hour'
		 WHERE id IN (SELECT id FROM outbox WHERE locked_at IS NOT NULL AND random() < %g FOR UPDATE SKIP LOCKED)`, share))
}

// write appends the events in transactions of one to five versions each. Every
// aggregate has one writer, as if its row were locked.
func (h *history) write(t *testing.T) {
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

func (h *history) commit(ctx context.Context, db *pgxpool.Pool, i, n int) error {
	events := make([]eventing.Event, n)
	for k := range events {
		events[k] = event(aggregate(i), h.last[i]+int64(k)+1)
	}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return Append(ctx, tx, nil, events...) })
	if err == nil {
		h.last[i] += int64(n)
	}
	return err
}

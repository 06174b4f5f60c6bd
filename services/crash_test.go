package services_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"example.com/lockstep/internal/localbroker"
)

// orphanLimit is the promise for what a killed relay leaves behind: its lease
// runs out after 20 s, and an idle relay looks every 5 s.
const orphanLimit = 30 * time.Second

// carnage says how much is written and how often it is disturbed.
type carnage struct {
	processes, updates, videos int
	kills                      int // of each process
}

// TestCrash kills the processes of the video service with SIGKILL while clients
// write through them, and holds what a subscriber saw against the database:
// every version of every video, none before its predecessor.
//
// LOCKSTEP_FULL=1 takes the full measure; `make crash` sets it.
func TestCrash(t *testing.T) {
	t.Parallel()
	c := carnage{processes: 2, updates: 200, videos: 10, kills: 2}
	if os.Getenv("LOCKSTEP_FULL") != "" {
		c = carnage{processes: 4, updates: 2000, videos: 50, kills: 5}
	}
	onEachKind(t, func(t *testing.T, kind localbroker.Kind) {
		t.Parallel()
		h := c.run(t, newWorld(t, startBroker(t, kind)))
		v := h.check()
		t.Logf("%d updates of %d videos through %d processes, %d kills: %s",
			c.updates, c.videos, c.processes, c.processes*c.kills, v)
		if v.disorder+v.losses+v.strays > 0 {
			t.Error("the subscriber did not see every version after its predecessor")
		}
		if v.events != c.videos+c.updates {
			t.Errorf("%d events for %d writes", v.events, c.videos+c.updates)
		}
		if v.slowest > orphanLimit {
			t.Errorf("an event waited %s behind a kill, more than %s", v.slowest, orphanLimit)
		}
	})
}

// run writes in phases. In each, one process is killed at a random moment, and
// started again at once; its next phase begins when it is ready to be killed.
func (c carnage) run(t *testing.T, w *world) *history {
	h, r := newHistory(), w.record(t)
	fleet, addrs := make([]*process, c.processes), make([]string, c.processes)
	for i := range fleet {
		addrs[i] = freeAddr(t)
		fleet[i] = w.spawnVideo(t, addrs[i])
	}
	clients := newClient(t, addrs...)
	ids := clients.create(t, c.videos)
	dice := rand.New(rand.NewPCG(2, 3)) // seeded, so that a failure comes again
	work := make(chan string)
	wait := clients.write(t, work)
	victims := c.victims(dice)
	for _, victim := range victims {
		fleet[victim].ready(t)
		writes := c.updates / len(victims)
		fatal := dice.IntN(writes)
		for n := range writes {
			work <- ids[dice.IntN(len(ids))]
			if n == fatal {
				at := time.Now()
				fleet[victim].kill(t)
				h.killed(at, w.leases(t))
				fleet[victim] = w.spawnVideo(t, addrs[victim])
			}
		}
	}
	close(work)
	wait()
	w.finish(t, h, r)
	return h
}

// victims names each process as often as it is to be killed, in random order.
func (c carnage) victims(dice *rand.Rand) []int {
	var order []int
	for i := range c.processes * c.kills {
		order = append(order, i%c.processes)
	}
	dice.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// leases returns the unpublished events, each with the lease it is under, which
// the oldest of its video carries.
func (w *world) leases(t testing.TB) map[string]string {
	t.Helper()
	return queryMap[string](t, w, `
		SELECT id::text, coalesce(first_value(lock_token) OVER (PARTITION BY aggregate_type, aggregate_id ORDER BY version), '')
		  FROM video.outbox
		 WHERE published_at IS NULL`)
}

// finish waits until all is published and recorded, or nothing comes any more,
// and completes the history: what is missing then is for the verdict.
func (w *world) finish(t testing.TB, h *history, r *recorder) {
	t.Helper()
	eventually(t, "the outbox is empty", func() bool { return len(w.leases(t)) == 0 })
	h.committed = queryMap[int64](t, w, `SELECT video_id::text, version FROM video.videos`)
	await(t.Context(), func() bool {
		h.sightings = r.seen()
		return h.check().losses == 0
	})
}

package services_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/porttest"
)

// carnage has the number of writes, and the number of kills among them.
type carnage struct {
	processes, updates, videos int
	kills                      int // of each process
}

// TestCrash kills the processes of the video service with SIGKILL while clients write
// through them, and compares the messages of a subscriber with the database: every
// version of every video, none before its predecessor.
//
// LOCKSTEP_FULL=1 runs the full number of kills; `make crash` sets it.
func TestCrash(t *testing.T) {
	t.Parallel()
	c := carnage{processes: 2, updates: 200, videos: 10, kills: 2}
	if os.Getenv("LOCKSTEP_FULL") != "" {
		c = carnage{processes: 4, updates: 2000, videos: 50, kills: 5}
	}
	onEachKind(t, func(t *testing.T, kind broker.Kind) {
		t.Parallel()
		records := c.run(t, newWorld(t, startBroker(t, kind)))
		summary := history.Summarize(records)
		t.Logf("%d updates of %d videos through %d processes, %d kills: %s",
			c.updates, c.videos, c.processes, c.processes*c.kills, summary)
		history.Require(t, records)
		if summary.Writes != c.videos+c.updates {
			t.Errorf("%d events for %d writes", summary.Writes, c.videos+c.updates)
		}
	})
}

// run writes in phases. In each phase one process is killed at a random moment, and
// started again at once; its next phase begins when it is ready.
func (c carnage) run(t *testing.T, w *world) []history.Record {
	t.Helper()
	r := w.record(t)
	fleet, addrs := make([]*spawned, c.processes), make([]string, c.processes)
	for i := range fleet {
		addrs[i] = porttest.Addr(t)
		fleet[i] = w.spawnVideo(t, addrs[i])
	}
	clients := newClient(t, addrs...)
	ids := clients.create(t, c.videos)
	dice := rand.New(rand.NewPCG(2, 3)) // seeded, so that a failure comes again
	work := make(chan string)
	wait := clients.write(t, work)
	victims := c.victims(dice)
	var killed []history.Record
	for _, victim := range victims {
		fleet[victim].ready(t)
		writes := c.updates / len(victims)
		fatal := dice.IntN(writes)
		for n := range writes {
			work <- ids[dice.IntN(len(ids))]
			if n == fatal {
				at := time.Now()
				fleet[victim].kill(t)
				killed = append(killed, orphans(t, w.db, at)...)
				fleet[victim] = w.spawnVideo(t, addrs[victim])
			}
		}
	}
	close(work)
	wait()
	return append(w.finish(t, r), killed...)
}

// victims names each process as often as it will be killed, in random order.
func (c carnage) victims(dice *rand.Rand) []int {
	var order []int
	for i := range c.processes * c.kills {
		order = append(order, i%c.processes)
	}
	dice.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return order
}

// finish waits until everything is published and recorded, or until no more messages
// come, and returns the records. The checker then finds missing ones.
func (w *world) finish(t testing.TB, r *recorder) (records []history.Record) {
	t.Helper()
	eventually(t, "the outbox is empty", func() bool { return len(orphans(t, w.db, time.Time{})) == 0 })
	owner := append(written(t, w.db), owned(t, w.db)...)
	await(t.Context(), func() bool {
		records = append(r.seen(), owner...)
		return len(history.Check(records)) == 0
	})
	return records
}

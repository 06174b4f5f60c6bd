package outbox

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// A lock is reported when claims have met it for some seconds, and then once a minute.
func TestLockedRowsAreReportedOnceAMinute(t *testing.T) {
	t.Parallel()
	var l lockedRows
	start := time.Now()
	for _, step := range []struct {
		after       time.Duration
		locked, say bool
	}{
		{0, true, false},
		{3 * time.Second, true, false},
		{4 * time.Second, false, false}, // another relay's claim
		{6 * time.Second, true, false},
		{10 * time.Second, true, false},
		{11 * time.Second, true, true},
		{30 * time.Second, true, false},
		{71 * time.Second, true, true},
		{80 * time.Second, false, false},
		{200 * time.Second, true, false},
	} {
		if say := l.met(start.Add(step.after), step.locked); say != step.say {
			t.Errorf("after %s, locked %t: said %t", step.after, step.locked, say)
		}
	}
}

// A claim that was cut off by its limits has skipped rows that no session has locked.
func TestATruncatedClaimMeetsNoLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, maxEvents)
	b.claimAll(t, r, claimed) // it joins the relays
	b.fillRetries(t, "", 700)
	s := newScanSchedule()
	if !r.inFlight.reserve(byScan) {
		t.Fatal("no room")
	}
	if err := r.scan(t.Context(), s, actRetries, claimed); err != nil {
		t.Fatal(err)
	}
	if len(claimed) == 0 || len(claimed) >= 700 || !s.retryLocks.since.IsZero() {
		t.Errorf("%d of 700 retries are claimed, locked since %s", len(claimed), s.retryLocks.since)
	}
}

// The log names the cause of events that do not leave because their rows are locked, both of new events
// and of retries.
func TestLockedRowsAreReported(t *testing.T) {
	t.Parallel()
	for name, due := range map[string]string{"new": `NULL`, "to be retried": `now() - interval '1 s'`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r, claimed := b.newRelay(t), make(chan *leasedBatch, 10)
			var log strings.Builder
			r.log = slog.New(slog.NewTextHandler(&log, nil))
			b.claimAll(t, r, claimed) // it joins the relays
			b.append(t, "a", 1, 1)
			b.exec(t, `UPDATE outbox SET next_retry_at = `+due)
			release := b.lock(t, "a", 1)
			s, todo := newScanSchedule(), actScanPage
			if name != "new" {
				todo = actRetries
			}
			claim := func() {
				s.started(datedLow{snapshot: queue.Beginning})
				if !r.inFlight.reserve(byScan) {
					t.Fatal("no room")
				}
				if err := r.scan(t.Context(), s, todo, claimed); err != nil {
					t.Fatal(err)
				}
			}
			claim()
			if log.Len() > 0 {
				t.Errorf("a lock that was met once: %s", log.String())
			}
			s.scanLocks.since, s.retryLocks.since = s.scanLocks.since.Add(-lockedTime), s.retryLocks.since.Add(-lockedTime)
			claim()
			if n := strings.Count(log.String(), "locked by another session"); n != 1 || len(claimed) != 0 {
				t.Errorf("%d lines about a lock, %d batches: %s", n, len(claimed), log.String())
			}
			release()
			claim()
			if len(claimed) != 1 || todo == actScanPage && !s.scanLocks.since.IsZero() || todo == actRetries && !s.retryLocks.since.IsZero() {
				t.Errorf("after the lock: %d batches", len(claimed))
			}
		})
	}
}

package outbox

import (
	"context"
	"math/rand/v2"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// purgeLook is how often a relay looks for a range of pages to purge.
	purgeLook = time.Minute
	// purgeRange is how many pages a relay takes at a time, which are 64 MB. purgePause is the
	// pause between two statements on these pages.
	purgeRange = 64 * queue.PurgePages
	purgePause = 50 * time.Millisecond
)

// purgeEvery is the pause between two passes over the table. A pass reads the whole table, also where nothing is
// old enough. So the pause grows with retention, up to six hours. An event stays longer than retention by an hour,
// or by a 28th of retention, at most.
func purgeEvery(retention time.Duration) time.Duration {
	return min(max(time.Hour, retention/28), 6*time.Hour)
}

// purgeAgain is the pause after a purge that failed.
var purgeAgain = backoff.Policy{Base: time.Second, Cap: time.Minute}

// purge deletes old published events from the ranges of pages that this relay takes. After an
// error it pauses, and then continues at the same page.
func (r *Relay) purge(ctx context.Context) {
	failures := 0
	failed := func(err error) {
		if ctx.Err() != nil {
			return
		}
		failures++
		r.log.WarnContext(ctx, "published events not purged", "error", err, "failures", failures)
		backoff.Sleep(ctx, purgeAgain.Delay(failures), nil)
	}
	for ctx.Err() == nil {
		first, due, err := r.queue.NextPurgeRange(ctx, purgeEvery(r.options.Retention), purgeRange)
		switch {
		case err != nil:
			failed(err)
			continue
		case !due:
			backoff.Sleep(ctx, purgeLook/2+rand.N(purgeLook/2), nil)
			continue
		}
		for page := first; page < first+purgeRange && ctx.Err() == nil; {
			_, more, err := r.queue.Purge(ctx, r.options.Retention, page)
			if err != nil {
				failed(err)
				continue
			}
			failures = 0
			if page += queue.PurgePages; !more {
				break
			}
			backoff.Sleep(ctx, purgePause, nil)
		}
	}
}

const (
	// watchEvery is the least pause between two readings of the backlog for the metrics. It is the usual
	// pause while events wait or arrive.
	watchEvery = 2 * time.Second
	// watchShare makes the pause longer after a long reading. The pause is then watchShare times the
	// number of living relays times the duration of the reading. So the readings of all relays take a
	// hundredth of a core of the database, unless the pause reaches watchMost. A reading of 20,000 rows
	// takes a core for about 50 ms, and longer with published rows between them.
	watchShare = 100
	// watchMost is the longest pause between two readings.
	watchMost = 30 * time.Second
	// watchIdle is the pause between two readings while no event waits. It bounds the age of the
	// metrics if another relay gets the next event, or if no relay can claim it.
	watchIdle = 10 * time.Second
	// staleAfter is the age of a reading at which the backlog counts as unknown.
	staleAfter = 2 * watchMost
)

// backlogReading is the backlog as it was read at a certain time.
type backlogReading struct {
	queue.Backlog
	tenants []queue.TenantBacklog
	at      time.Time // zero: never read
	// failures counts the readings in a row that failed. Backlog is then from an earlier reading.
	failures int
}

func (r *backlogReading) known() int64 {
	if r.failures > 0 || r.at.IsZero() || time.Since(r.at) > staleAfter {
		return 0
	}
	return 1
}

// grown returns age, which is an age at the time of the reading. While the backlog is unknown,
// grown adds the time since the reading. An age of 0 stays 0, because the reading found no event that
// waits.
func (r *backlogReading) grown(age time.Duration) time.Duration {
	if age == 0 || r.known() == 1 {
		return age
	}
	return age + time.Since(r.at)
}

// watchBacklog reads the backlog for the metrics again and again until ctx ends. Each read has its
// own time limit. watchBacklog runs concurrently with everything else.
func (r *Relay) watchBacklog(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		r.readBacklog(ctx)
		read := r.backlog.Load()
		read.wait(ctx, read.pause(time.Since(start), r.followUps.relays()), r.inFlight.arrived)
	}
}

// wait waits until the next reading is due. If this reading failed, or found events that wait or are
// parked, the next one is due after pause. If it found none, the next one is due after watchIdle, or
// when an event arrives, but not before pause is over.
func (r *backlogReading) wait(ctx context.Context, pause time.Duration, arrived <-chan struct{}) {
	if backoff.Sleep(ctx, pause, nil) && r.empty() && pause < watchIdle {
		backoff.Sleep(ctx, watchIdle-pause, arrived)
	}
}

// empty reports whether the reading found no event that waits, and none that is parked.
func (r *backlogReading) empty() bool {
	return r.failures == 0 && r.Pending == 0 && r.Parked == 0
}

// pause returns the pause after a reading that took the duration took. The more relays are alive, the
// longer it is. After a first failed reading the pause is short, because the reading may have waited
// for a database that was away, and the ages in the metrics grow until the next reading. If the next
// reading fails, too, the table may be too large for a reading.
func (r *backlogReading) pause(took time.Duration, relays int) time.Duration {
	if r.failures == 1 {
		return watchEvery
	}
	return min(watchMost, max(watchEvery, watchShare*time.Duration(relays)*took))
}

// readBacklog reads the backlog once. It continues the search for the oldest event where the last
// reading left that search.
func (r *Relay) readBacklog(ctx context.Context) {
	start, reading := time.Now(), *r.backlog.Load()
	held := r.followUps.exclusions().held
	b, tenants, err := r.queue.Backlog(ctx, reading.Search, held...)
	switch {
	case err == nil:
		reading = backlogReading{Backlog: b, tenants: tenants, at: start}
	case ctx.Err() == nil:
		reading.failures++
		r.log.WarnContext(ctx, "the backlog is not known", "error", err)
	}
	r.backlog.Store(&reading)
}

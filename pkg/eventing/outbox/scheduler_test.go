package outbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

func TestNextOfClaims(t *testing.T) {
	t.Parallel()
	now := time.Now()
	later, past := now.Add(time.Minute), now.Add(-time.Second)
	joined := dueTimes{registered: true}
	for name, tc := range map[string]struct {
		claims            claimSchedule
		news              dueTimes
		wakeup, allPaused bool
		want              action
		until             time.Time // of those that wait
	}{
		"nothing was ever done":                  {want: actRegister},
		"it is the first look":                   {news: joined, want: actClaim},
		"nothing is due":                         {claims: claimSchedule{pollAt: later}, news: joined, want: actIdle, until: now.Add(longestWait)},
		"a poll is due soon":                     {claims: claimSchedule{pollAt: now.Add(time.Second)}, news: joined, want: actIdle, until: now.Add(time.Second)},
		"a poll is due":                          {claims: claimSchedule{pollAt: past}, news: joined, want: actClaim},
		"something was committed":                {claims: claimSchedule{pollAt: later}, news: joined, wakeup: true, want: actClaim},
		"something follows":                      {claims: claimSchedule{pollAt: later}, news: dueTimes{registered: true, claimAt: past}, want: actClaim},
		"something may follow":                   {claims: claimSchedule{pollAt: later}, news: dueTimes{registered: true, claimAt: now.Add(followUpDelay)}, want: actIdle, until: now.Add(followUpDelay)},
		"the database is away":                   {claims: claimSchedule{pollAt: past, outages: outages{pausedUntil: later}}, news: joined, wakeup: true, want: actPause, until: later},
		"it was away before the first heartbeat": {claims: claimSchedule{outages: outages{pausedUntil: later}}, want: actPause, until: later},
		"all topics are out":                     {claims: claimSchedule{pollAt: past}, news: joined, wakeup: true, allPaused: true, want: actPause, until: now.Add(longestWait)},
		"a scan is owed":                         {claims: claimSchedule{pollAt: later}, news: dueTimes{registered: true, scanAt: past, retryAt: past}, want: actIdle, until: now.Add(longestWait)},
	} {
		got, until := tc.claims.next(now, tc.news, tc.wakeup, tc.allPaused)
		if got != tc.want || (got == actIdle || got == actPause) && !until.Equal(tc.until) {
			t.Errorf("%s: action %d until %s, want %d until %s", name, got, until.Sub(now), tc.want, tc.until.Sub(now))
		}
	}
}

// A claim takes the wake-up that made it due, or the due time of retries. When it fails, it is due
// again after the pause: no event waits for the next poll.
func TestAFailedClaimIsDueAfterItsPause(t *testing.T) {
	t.Parallel()
	r := &Relay{log: slog.New(slog.DiscardHandler), options: Options{OutageBackoff: outagePause}, inFlight: newInFlight(), followUps: newFollowUps()}
	now, due := time.Now(), dueTimes{registered: true}
	claims, scans := claimSchedule{}, &scanSchedule{sweepAt: now.Add(time.Hour), retryAt: now.Add(time.Hour)}
	for range 12 {
		claims.claimed(now, 0, false)
	}
	r.claimFailed(t.Context(), &claims, io.ErrUnexpectedEOF)
	if got, _ := claims.next(claims.pausedUntil, due, false, false); got != actClaim {
		t.Errorf("action %d after a failed claim's pause, want %d", got, actClaim)
	}
	r.scanFailed(t.Context(), scans, actRetries, io.ErrUnexpectedEOF)
	if got, _ := scans.next(scans.outages[actRetries].pausedUntil, due); got != actRetries {
		t.Errorf("action %d after the pause of retries, want %d", got, actRetries)
	}
}

// A server that refuses a claim answers, and the relay is about to meet it. So the pause is as short as after the first failure,
// however long the outage before was. If the server refuses claims again and again, the pauses grow.
func TestARefusedClaimEndsAnOutage(t *testing.T) {
	t.Parallel()
	r := &Relay{log: slog.New(slog.DiscardHandler), options: Options{OutageBackoff: outagePause}, wakeHeartbeats: make(chan struct{}, 1)}
	r.inFlight, r.followUps = newInFlight(), newFollowUps()
	refused := fmt.Errorf("claim new events: %w", queue.ErrAnotherServer)
	claims, scans, began := claimSchedule{}, newScanSchedule(), time.Now()
	scanned := &scans.outages[actScanPage]
	fail := func(err error) {
		r.claimFailed(t.Context(), &claims, err)
		r.scanFailed(t.Context(), scans, actScanPage, err)
	}
	for n, err := range []error{io.ErrUnexpectedEOF, io.ErrUnexpectedEOF, io.ErrUnexpectedEOF, refused, refused, refused, io.ErrUnexpectedEOF} {
		fail(err)
		want := []int{1, 2, 3, 1, 2, 3, 4}[n]
		if claims.failures != want || scanned.failures != want {
			t.Errorf("%d failures in a row of claims and %d of pages, want %d", claims.failures, scanned.failures, want)
		}
	}
	if claims.since.Before(began) || claims.since.After(claims.pausedUntil) {
		t.Errorf("the claims have failed since %s", claims.since)
	}
}

// Terraform's alert on the line waits for as long as the alert on the gauge does.
func TestAFailedClaimSaysForHowLong(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := &Relay{log: slog.New(slog.NewTextHandler(&log, nil)), options: Options{OutageBackoff: outagePause}}
	claims, began := claimSchedule{}, time.Now().Add(-time.Minute)
	claims.failed(began, io.ErrUnexpectedEOF, outagePause)
	r.claimFailed(t.Context(), &claims, io.ErrUnexpectedEOF)
	if !regexp.MustCompile(`held_up_ms=6\d{4} `).MatchString(log.String()) {
		t.Errorf("after a minute the line says %s", log.String())
	}
	log.Reset()
	ended, end := context.WithCancel(t.Context())
	end()
	r.claimFailed(ended, &claims, ended.Err())
	if log.Len() > 0 {
		t.Errorf("a relay that ends says %s", log.String())
	}
	claims.claimed(time.Now(), 0, false)
	if !claims.since.IsZero() {
		t.Errorf("after a success it has failed since %s", claims.since)
	}
}

// While one kind of action fails, the others go on, and their success does not shorten its pauses.
func TestOneKindOfScanThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	r := &Relay{log: slog.New(slog.DiscardHandler), options: Options{OutageBackoff: outagePause}, inFlight: newInFlight(), followUps: newFollowUps()}
	for _, failing := range []action{actRetries, actScanPage, actSweepPage} {
		s, now := newScanSchedule(), time.Now()
		due, made, began := dueTimes{registered: true, scanAt: now}, map[action]int{}, now
		for now.Sub(began) < time.Minute {
			todo, until := s.next(now, due)
			made[todo]++
			switch {
			case todo == actIdle && !until.After(now):
				t.Fatalf("with action %d failing it is idle until %s ago", failing, now.Sub(until))
			case todo == actIdle:
				now = until
			case todo == failing:
				r.scanFailed(t.Context(), s, todo, io.ErrUnexpectedEOF)
				o := &s.outages[todo]
				o.pausedUntil = now.Add(time.Until(o.pausedUntil)) // this clock is not the machine's
				s.retryAt = s.after(actRetries, s.retryAt)
			case todo == actRetries:
				s.retried(now, false, 0)
			case todo == actScanPage:
				s.paged(queue.Page{Done: true})
				due.scanAt = now.Add(scanEvery)
			case todo == actStartScan:
				s.started(datedLow{snapshot: queue.Beginning})
			case todo == actSweepPage:
				s.swept(now, queue.Page{Done: true})
			}
		}
		for _, a := range []action{actRetries, actScanPage, actSweepPage} {
			if a != failing && made[a] < 11 {
				t.Errorf("with action %d failing, %d was made %d times in a minute", failing, a, made[a])
			}
		}
		if n := made[failing]; n < 11 || n > 40 || s.outages[failing].failures != n {
			t.Errorf("action %d failed %d times in a minute, %d in a row", failing, n, s.outages[failing].failures)
		}
	}
}

// Retries that are always due, because there are more than a claim takes or because their times are
// close together, take turns with the pages of a scan, and with those of the sweep.
func TestRetriesThatAreAlwaysDueHoldUpNoScan(t *testing.T) {
	t.Parallel()
	for _, truncated := range []bool{true, false} {
		for _, other := range []action{actScanPage, actSweepPage} {
			s, now, made := newScanSchedule(), time.Now(), map[action]int{}
			for range 100 {
				var due dueTimes
				if due.registered = true; other == actScanPage {
					due.scanAt = now
				}
				todo, _ := s.next(now, due)
				made[todo]++
				sent := now
				switch now = now.Add(10 * time.Millisecond); todo {
				case actRetries:
					s.retried(sent, truncated, time.Millisecond)
				case actStartScan:
					s.started(datedLow{snapshot: queue.Beginning})
				case actScanPage:
					s.paged(queue.Page{Done: true})
				case actSweepPage:
					s.swept(sent, queue.Page{Claimed: queue.Claimed{Truncated: true}})
				default:
					t.Fatalf("action %d", todo)
				}
			}
			if made[actRetries] < 30 || made[other] < 30 {
				t.Errorf("truncated %t: of 100 actions %d claim retries, and %d are action %d", truncated, made[actRetries], made[other], other)
			}
		}
	}
}

func TestClaimsPollMoreSlowlyWhileThereIsNothing(t *testing.T) {
	t.Parallel()
	var c claimSchedule
	now := time.Now()
	c.claimed(now, 0, true)
	if !c.pollAt.Equal(now) {
		t.Error("a claim that was cut is not followed by the next at once")
	}
	for range 20 {
		c.claimed(now, 0, false)
	}
	if c.emptyPolls < 20 || c.pollAt.After(now.Add(idlePause.Cap)) {
		t.Errorf("after %d empty polls the next is in %s", c.emptyPolls, c.pollAt.Sub(now))
	}
	c.failed(now, io.ErrUnexpectedEOF, outagePause)
	c.failed(now, io.ErrUnexpectedEOF, outagePause)
	if c.failures != 2 || !now.Before(c.pausedUntil) {
		t.Error("failures in a row are not counted, or not followed by a pause")
	}
	c.claimed(now, 1, false)
	if c.emptyPolls != 1 || c.failures != 0 || now.Before(c.pausedUntil) {
		t.Errorf("after a claim that found something: %+v", c)
	}
}

// A new relay claims the retries of others at once, even if it has a later one of its own.
func TestANewRelayClaimsRetriesAtOnce(t *testing.T) {
	t.Parallel()
	got, _ := newScanSchedule().next(time.Now(), dueTimes{registered: true, retryAt: time.Now().Add(time.Hour)})
	if got != actRetries {
		t.Errorf("action %d, want %d", got, actRetries)
	}
}

func TestNextOfScans(t *testing.T) {
	t.Parallel()
	now := time.Now()
	later, past := now.Add(time.Second), now.Add(-time.Second)
	parts := queue.Beginning.Since()
	idle := scanSchedule{retryAt: now.Add(time.Minute), sweepAt: now.Add(time.Minute)}
	with := func(change func(*scanSchedule)) scanSchedule {
		s := idle
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		scans scanSchedule
		news  dueTimes
		want  action
		until time.Time
	}{
		"it has not joined":                       {scans: scanSchedule{}, news: dueTimes{scanAt: past}, want: actIdle, until: now.Add(scanEvery)},
		"nothing is due":                          {scans: idle, want: actIdle, until: now.Add(time.Minute)},
		"retries are due by the clock":            {scans: with(func(s *scanSchedule) { s.retryAt, s.parts = past, parts }), want: actRetries},
		"a retry of its own is due":               {scans: with(func(s *scanSchedule) { s.parts = parts }), news: dueTimes{retryAt: past}, want: actRetries},
		"a retry of its own is to come":           {scans: idle, news: dueTimes{retryAt: later}, want: actIdle, until: later},
		"a scan is on its way":                    {scans: with(func(s *scanSchedule) { s.parts, s.sweepAt = parts, past }), news: dueTimes{scanAt: past}, want: actScanPage},
		"retries were last, a scan is on its way": {scans: with(func(s *scanSchedule) { s.retryAt, s.retriesLast, s.parts = past, true, parts }), want: actScanPage},
		"retries were last, nothing else is due":  {scans: with(func(s *scanSchedule) { s.retryAt, s.retriesLast = past, true }), want: actRetries},
		"a scan is owed":                          {scans: with(func(s *scanSchedule) { s.sweepAt = past }), news: dueTimes{scanAt: past}, want: actStartScan},
		"a scan will be owed":                     {scans: idle, news: dueTimes{scanAt: later}, want: actIdle, until: later},
		"nothing but the round is due":            {scans: with(func(s *scanSchedule) { s.sweepAt = past }), want: actSweepPage},
		"the last one has failed":                 {scans: with(func(s *scanSchedule) { s.parts, s.outages[actScanPage].pausedUntil = parts, later }), news: dueTimes{scanAt: past}, want: actIdle, until: later},
		"retries have failed":                     {scans: with(func(s *scanSchedule) { s.outages[actRetries].pausedUntil = later }), news: dueTimes{retryAt: past}, want: actIdle, until: later},
	} {
		tc.news.registered = name != "it has not joined"
		got, until := tc.scans.next(now, tc.news)
		if got != tc.want || (got == actIdle || got == actPause) && !until.Equal(tc.until) {
			t.Errorf("%s: action %d until %s, want %d until %s", name, got, until.Sub(now), tc.want, tc.until.Sub(now))
		}
	}
}

func TestAScanGoesThroughItsParts(t *testing.T) {
	t.Parallel()
	s := newScanSchedule()
	s.started(datedLow{snapshot: "5:9:5,7"})
	if len(s.parts) != 3 {
		t.Fatalf("%d parts, want the two that were open and the rest", len(s.parts))
	}
	next := queue.Beginning.Since()[0]
	if s.paged(queue.Page{Claimed: queue.Claimed{Truncated: true}, Next: next, Done: true}) || len(s.parts) != 3 || s.parts[0] == next {
		t.Error("what a claim had no room for is passed over")
	}
	if s.paged(queue.Page{Next: next}) || len(s.parts) != 3 || s.parts[0] != next {
		t.Error("a page does not go on behind the last")
	}
	for _, through := range []bool{false, false, true} {
		if s.paged(queue.Page{Done: true}) != through {
			t.Errorf("through with %d parts left", len(s.parts))
		}
	}
	now := time.Now()
	s.swept(now, queue.Page{Claimed: queue.Claimed{Truncated: true}})
	if !s.sweepAt.Equal(now) {
		t.Error("a round that had no room waits for the next page")
	}
	s.swept(now, queue.Page{Done: true})
	if !slices.Equal(s.sweep, queue.Beginning.Since()) || !s.sweepAt.After(now) {
		t.Error("a round does not begin again, after a pause")
	}
	s.retried(now, false, time.Millisecond)
	if s.retryAt.After(now.Add(time.Millisecond)) {
		t.Error("the next retry is late")
	}
	s.retried(now, true, 0)
	if !s.retryAt.Equal(now) {
		t.Error("retries that were cut wait")
	}
}

// However many results arrive while there is no room for a claim, the published versions
// are bounded, and a scan covers the others.
func TestFollowUpsAreBounded(t *testing.T) {
	t.Parallel()
	a := newFollowUps()
	a.claimEnded(queue.Claimed{Seen: "7:7:"}, toClaim{}, "7:7:")
	u := waitingFor(1, 0)
	u.batch.low.snapshot, u.batch.lowBehind.snapshot = queue.Beginning, queue.Beginning
	const each = 100 // one by one, the race detector takes half a minute
	for range 4 * maxFollowUps / each {
		a.settled(slices.Repeat([]*unsettled{u}, each), false)
	}
	if len(a.published.list) != maxFollowUps || a.due().scanAt.IsZero() || a.scanLow != queue.Beginning {
		t.Errorf("%d positions, a scan from %q", len(a.published.list), a.scanLow)
	}
	a.giveBack(a.take(100))
	if len(a.published.list) != maxFollowUps {
		t.Errorf("%d positions after a claim that failed", len(a.published.list))
	}
}

// low reads the lists and the batches in flight in one critical section: while it waits for
// one, no batch leaves the other. So the low covers a batch that moves to and fro at each
// moment.
func TestLowReadsBothAtOnce(t *testing.T) {
	t.Parallel()
	a, f := newFollowUps(), newInFlight()
	a.claimEnded(queue.Claimed{Seen: "50:50:"}, toClaim{}, "50:50:")
	f.mu.Lock()
	low := make(chan queue.TxSnapshot)
	go func() { low <- a.low(f) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); a.mu.TryLock(); <-tick.C {
		a.mu.Unlock()
		if time.Now().After(end) {
			f.mu.Unlock()
			t.Fatal("batches may leave the lists while the low waits for a look at what is in flight")
		}
	}
	r := batchOf(1, 1)
	f.batches[r.Head()] = &leasedBatch{events: r, low: datedLow{snapshot: "10:10:"}} // and leaves the list next
	f.mu.Unlock()
	if got := <-low; got != "10:10:" {
		t.Errorf("low %q", got)
	}
}

// The low of a relay is below all that it has not finished, wherever that stands.
func TestLowIsBelowAllThatIsUnfinished(t *testing.T) {
	t.Parallel()
	a, f := newFollowUps(), newInFlight()
	low := func(want queue.TxSnapshot, when string) {
		t.Helper()
		if got := a.low(f); got != want {
			t.Errorf("%s: low %q, want %q", when, got, want)
		}
	}
	low("", "before it joined")
	a.heartbeatWritten(queue.HeartbeatResult{Low: "20:20:", Seen: "20:20:", Server: firstServer}, true)
	a.beginScan()
	a.endScan()
	low("20:20:", "joined")
	batch := queue.Batch{{Event: event("a", 1)}}
	claim := queue.Claim{Events: claimEvents, PerAggregate: minPerAggregate, Bytes: claimBytes}
	since := a.take(10).seen
	f.reserved++
	h := f.add(claimResult{Claimed: queue.Claimed{Batches: []queue.Batch{batch}, Seen: "30:30:"}, claim: claim, sent: time.Now(), low: datedLow{snapshot: since}})
	a.claimEnded(queue.Claimed{Seen: "30:30:"}, toClaim{}, since)
	low("20:20:", "in flight")
	a.settled([]*unsettled{published(h[0], 1)}, true)
	f.removeAll(h)
	low("30:30:", "published: what follows was not visible to the claim")
	after := a.take(10).after
	a.claimEnded(queue.Claimed{Seen: "40:40:"}, toClaim{}, "30:30:")
	if len(after) != 1 {
		t.Fatalf("%d positions", len(after))
	}
	low("40:40:", "nothing followed")
	a.heartbeatWritten(queue.HeartbeatResult{Low: "10:10:", Inherited: "10:10:", Seen: "50:50:", Server: firstServer}, false)
	low("10:10:", "taken over from a dead one")
	from := a.beginScan().snapshot
	low("10:10:", "while it scans")
	f.reserved++
	h = f.add(claimResult{Claimed: queue.Claimed{Batches: []queue.Batch{batch}, Seen: "50:50:"}, claim: claim, sent: time.Now(), low: datedLow{snapshot: from}})
	a.setPausedTypes([]string{"video"})
	a.pageScanned(queue.Cursor{}, exclusions{paused: []string{"video"}})
	a.endScan()
	low("10:10:", "a topic was out meanwhile")
	a.settled([]*unsettled{published(h[0], 0)}, false)
	f.removeAll(h)
	low("10:10:", "handed back")
	a.topicResumed([]string{"video"})
	low("10:10:", "the topic is back")
	if a.due().scanAt.IsZero() {
		t.Error("what was left alone is not looked for")
	}
	a.beginScan()
	a.endScan()
	low("40:40:", "all is done")
	a.setPausedTypes([]string{"video"})
	f.reserved++
	h = f.add(claimResult{Claimed: queue.Claimed{Batches: []queue.Batch{batch}, Seen: "50:50:"}, claim: claim, sent: time.Now(), low: datedLow{snapshot: "15:15:"}})
	a.settled([]*unsettled{published(h[0], 0)}, false)
	f.removeAll(h)
	low("15:15:", "handed back while the topic is out")
}

// A scan that finds nothing to claim while tenants are held leaves the database time for other
// statements. A longer page is followed by a longer pause, up to a bound. Other claims go on
// meanwhile, and the next scan does not wait.
func TestAScanPausesBetweenPagesOfHeldTenants(t *testing.T) {
	t.Parallel()
	s, now := newScanSchedule(), time.Now()
	due := dueTimes{registered: true}
	s.retried(now, false, time.Hour)
	s.swept(now, queue.Page{Done: true})
	wanted := func(when string, due dueTimes, todo action, pause time.Duration) {
		t.Helper()
		got, until := s.next(now, due)
		if got != todo || todo == actIdle && until.Sub(now) != pause {
			t.Errorf("%s comes action %d in %s, want %d in %s", when, got, until.Sub(now), todo, pause)
		}
	}
	for _, page := range []time.Duration{10 * time.Millisecond, time.Hour} {
		s.started(datedLow{snapshot: queue.Beginning})
		wanted("at the start", due, actScanPage, 0)
		pause := min(pagePauseShare*page, maxPagePause)
		s.pausePages(now.Add(-page), now)
		wanted("after a page", due, actIdle, pause)
		retries := due
		retries.retryAt = now
		wanted("when a retry is due", retries, actRetries, 0)
		s.retried(now, false, time.Hour)
		s.parts = nil
		scan := due
		scan.scanAt = now
		wanted("when another scan is due", scan, actStartScan, 0)
		s.started(datedLow{snapshot: queue.Beginning})
		wanted("at the start of that scan", due, actScanPage, 0)
		s.pausePages(now.Add(-page), now)
		now = now.Add(pause)
		wanted("after the pause", due, actScanPage, 0)
	}
}

// A page of a scan is followed by a pause only while tenants are held, and only if the scan has
// found nothing to claim in it.
func TestOnlyScansPastHeldTenantsPause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.newRelay(t)
	claimed := make(chan *leasedBatch, 10)
	b.claimAll(t, r, claimed) // it joins the relays
	scan := func() (paused bool) {
		s := newScanSchedule()
		s.started(datedLow{snapshot: queue.Beginning})
		if !r.inFlight.reserve(byScan) {
			t.Fatal("no room")
		}
		if err := r.scan(t.Context(), s, actScanPage, claimed); err != nil {
			t.Fatal(err)
		}
		return !s.pageAt.IsZero()
	}
	if scan() {
		t.Error("a scan pauses without held tenants")
	}
	r.followUps.hold([]string{"busy"})
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
		VALUES (gen_random_uuid(), 'video', 'busy', 'VideoCreated', 1, '', 'busy')`)
	if !scan() || len(claimed) != 0 {
		t.Error("a scan past a held tenant does not pause")
	}
	b.append(t, "a", 1, 1)
	if scan() || len(claimed) != 1 {
		t.Error("a scan that has found an event pauses")
	}
}

package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// readWait is how many seconds a read waits before it asks the owner.
	readWait = 2
	// afterFailure is the pause of a client after a request that failed.
	afterFailure = 200 * time.Millisecond
)

// A burst is 2,000 events.
const burstVideos, burstVersions = 200, 10

// A backlog is 4,000 events. Clients, services, Postgres and browser share the processors, and
// 1,000 writes a second take more than two processors. A backlog leaves faster than it came. It
// lasts for longer than the two seconds over which the page computes its rates.
const backlogVideos, backlogVersions = 400, 10

// maxVideos bounds the videos of one load, and so the queries about them.
const maxVideos = 2000

// work is a load to be done: videos to create and to change up to a version.
type work struct {
	videos, versions int
	// during, if it is set, is closed when the load may end. Until then the clients create
	// further videos.
	during <-chan struct{}
	// eachRead reads back each version, not only the last one; noRead reads none.
	eachRead, noRead bool
}

// load is the result of writes by several clients at once.
type load struct {
	promised promised
	failed   int64
	why      error // of the first request that failed
	reads    int64 // number of reads with a token
	took     time.Duration

	mu sync.Mutex
}

// promised has the newest acknowledged version of each video, by its id.
type promised map[uuid.UUID]int64

func (p promised) ids() []uuid.UUID { return slices.Collect(maps.Keys(p)) }

// writes does the work with several clients at once. It counts a write that fails and does not
// repeat it, because the write may have committed. If a read answers an older version than its
// token, writes fails at once.
func (p *Pair) writes(ctx context.Context, w work) (*load, error) {
	l, started := &load{promised: promised{}}, time.Now()
	var next atomic.Int64
	group, running := errgroup.WithContext(ctx)
	for range conns {
		group.Go(func() error {
			for running.Err() == nil && w.wants(next.Add(1)) {
				if err := p.life(running, l, w); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	l.took = time.Since(started)
	if err == nil && len(l.promised) == 0 {
		err = fmt.Errorf("no video was created: %w", l.why)
	}
	return l, errors.Join(err, ctx.Err())
}

// wants reports whether the video with number n is part of the work.
func (w work) wants(n int64) bool {
	if n <= int64(w.videos) {
		return true
	}
	select {
	case <-w.during:
		return false
	default:
		return w.during != nil && n <= maxVideos
	}
}

// life creates a video, changes it and reads it.
func (p *Pair) life(ctx context.Context, l *load, w work) error {
	v, err := p.create(ctx, "Scenario")
	if err != nil {
		l.missed(ctx, err)
		return nil // its id is not known, and the other videos are enough
	}
	id := v.ID
	for k := 1; ; k++ {
		if err != nil {
			l.missed(ctx, err)
		} else {
			l.promise(id, v.Version)
		}
		if err == nil && !w.noRead && (w.eachRead || k == w.versions) {
			if err := p.readBack(ctx, l, id, v); err != nil {
				return err
			}
		}
		if k == w.versions {
			return nil
		}
		v, err = p.update(ctx, id, k)
	}
}

// readBack reads a video with the token of the write that answered v.
func (p *Pair) readBack(ctx context.Context, l *load, id uuid.UUID, v video) error {
	seen, err := p.read(ctx, id, v.Token, readWait)
	switch {
	case err != nil:
		l.missed(ctx, err)
		return nil
	case seen.Status != http.StatusOK:
		l.missed(ctx, fmt.Errorf("a read: %d %s", seen.Status, seen.Detail))
		return nil
	case seen.Version < v.Version:
		return fmt.Errorf("a read with the token of version %d answered version %d", v.Version, seen.Version)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reads++
	return nil
}

// promise notes an acknowledged write. The writes of one video come one after the other.
func (l *load) promise(id uuid.UUID, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised[id] = version
}

// missed counts a request that failed, and waits so that the failed part can come back.
func (l *load) missed(ctx context.Context, why error) {
	l.mu.Lock()
	l.failed++
	l.why = cmp.Or(l.why, why)
	l.mu.Unlock()
	backoff.Sleep(ctx, afterFailure, nil)
}

// agreed waits until both services agree on the videos. It then checks the account of both
// databases against the acknowledged writes, and against P1, P2, P3 and P5.
func (p *Pair) agreed(ctx context.Context, acknowledged promised) (r record) {
	must(p.settled(ctx, acknowledged.ids()...))
	// A repair may have written a row of the projection before the events of that row are
	// settled.
	must(until(ctx, "catalog has settled every event", func(ctx context.Context) (settled bool, err error) {
		r, err = p.account(ctx, acknowledged)
		return r.Unapplied == 0, err
	}))
	switch {
	case r.Lost > 0:
		failf("%d videos are older than an acknowledged write", r.Lost)
	case r.WithoutEvents > 0:
		failf("%d videos have other events than their versions", r.WithoutEvents)
	case r.Disordered > 0:
		failf("%d events were published before an earlier version", r.Disordered)
	}
	return r
}

func (p *Pair) writeOne(ctx context.Context, t *run) {
	v := got(p.create(ctx, "First cut"))
	for k := range 3 {
		if k > 0 {
			v = got(p.update(ctx, v.ID, k))
		}
		seen := got(p.fresh(ctx, v, 10))
		t.sayf("Version %d was read from the %s.", seen.Version, seen.Source)
	}
	r := p.agreed(ctx, promised{v.ID: v.Version})
	t.sawf("P8", "Three writes, and each read with a token had its write.")
	t.sawf("P1", "One video with 3 versions has %d events.", r.Events)
}

func (p *Pair) burst(ctx context.Context, t *run) {
	t.sayf("16 clients write.")
	l := got(p.writes(ctx, work{videos: burstVideos, versions: burstVersions}))
	r := p.agreed(ctx, l.promised)
	if l.failed > 0 {
		failf("%d requests failed, the first: %w", l.failed, l.why)
	}
	t.sawf("P3", "%d events of %d videos at %.0f a second: none was published before an earlier version of its video.",
		r.Events, r.Videos, float64(r.Events)/l.took.Seconds())
	t.sawf("P8", "%d reads with a token during a burst, and none was too old.", l.reads)
}

func (p *Pair) pauseRelay(ctx context.Context, t *run) {
	t.atEnd(p.withoutFaults)
	must(p.setFaults(ctx, fault{Kind: "outage", Method: "Publish"}))
	t.sayf("The broker takes no events.")
	l := got(p.writes(ctx, work{videos: backlogVideos, versions: backlogVersions, noRead: true}))
	waiting := got(p.pending(ctx, l.promised.ids()))
	v := got(p.update(ctx, l.promised.ids()[0], 99))
	l.promise(v.ID, v.Version)
	seen := got(p.fresh(ctx, v, 0))
	if waiting == 0 || seen.Source != "authority" {
		failf("%d events wait, and the read was answered by the %s", waiting, seen.Source)
	}
	t.sayf("%d events wait in the outbox, and a read was answered by the owner. The broker takes events again.", waiting)
	must(p.withoutFaults(ctx))
	begun := time.Now()
	p.agreed(ctx, l.promised)
	t.sawf("P2", "%d events waited, and all of them left in order afterwards, and were applied, within %.1f s.",
		waiting, time.Since(begun).Seconds())
	t.sawf("P8", "While nothing left, a read with a token had the owner's answer.")
}

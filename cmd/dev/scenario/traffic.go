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
	// readWait is the number of seconds that catalog waits for an event before it asks the owner.
	readWait = 2
	// afterFailure is the pause of a client after a failed request.
	afterFailure = 200 * time.Millisecond
)

// A burst makes 2,000 events: one for each version of each video.
const burstVideos, burstVersions = 200, 10

// A backlog has 4,000 events. To publish them takes less time than to write them, because 1,000 writes a
// second take more than two processors. But it takes more than two seconds, so that the page shows the rate:
// the page computes rates over two seconds.
const backlogVideos, backlogVersions = 400, 10

// maxVideos is the maximum number of videos of one load. It also bounds the size of the queries
// about these videos.
const maxVideos = 2000

// work describes a load. The field videos is the number of videos to create. Each video is changed
// up to the version versions.
type work struct {
	videos, versions int
	// If during is not nil, the clients create further videos until during is closed.
	during <-chan struct{}
	// If eachRead is true, the clients read back each version. If noRead is true, they read
	// nothing. If neither is true, they read back the last version only.
	eachRead, noRead bool
}

// load is the result of a work that several clients have done at once.
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

// writes does the work w with several clients at once. It counts a failed write and does not repeat
// the write, because the write may have committed. If a read answers an older version than its
// token requires, writes stops and returns an error.
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

// wants reports whether the work includes the video with the number n.
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

// life creates one video, changes it up to the last version of w, and reads it back as w says.
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

// readBack reads a video with the token of the write that answered v. It returns an error if the
// read answers an older version.
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

// promise records the version of an acknowledged write. The writes of one video come one after the
// other, so the last version is the newest.
func (l *load) promise(id uuid.UUID, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promised[id] = version
}

// missed counts a failed request. Then it waits, so that the failed part can come back.
func (l *load) missed(ctx context.Context, why error) {
	l.mu.Lock()
	l.failed++
	l.why = cmp.Or(l.why, why)
	l.mu.Unlock()
	backoff.Sleep(ctx, afterFailure, nil)
}

// agreed waits until both services agree on the videos, and catalog has applied every event. Then
// it compares both databases with the acknowledged writes, and checks the promises P1, P2, P3 and
// P5.
func (p *Pair) agreed(ctx context.Context, acknowledged promised) (r record) {
	must(p.settled(ctx, acknowledged.ids()...))
	// A repair may have written a row of the projection before catalog has applied the events of
	// that row. So agreed also waits for the events.
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

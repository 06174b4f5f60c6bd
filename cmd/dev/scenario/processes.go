package scenario

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/internal/local/process"
)

// startAll starts each service that does not run. Then it waits until both services are ready.
func (p *Pair) startAll(ctx context.Context) error {
	for _, i := range []*process.Instance{p.Video, p.Catalog} {
		if i.State().PID == 0 {
			if err := i.Start(); err != nil {
				return err
			}
		}
	}
	return p.ready(ctx)
}

// during runs attack while clients write and read. attack begins after events have begun to arrive.
// The clients go on at least until attack is over.
func (p *Pair) during(ctx context.Context, attack func(context.Context)) (l *load) {
	group, running := errgroup.WithContext(ctx)
	over := make(chan struct{})
	// The writers use ctx and not running. So if the attack fails, it does not cut off the writers.
	group.Go(func() (err error) {
		l, err = p.writes(ctx, work{videos: 120, versions: 10, during: over, eachRead: true})
		return err
	})
	group.Go(func() error {
		defer close(over)
		return attempt(func() {
			before := got(p.newest(running))
			must(until(running, "events flow", func(ctx context.Context) (bool, error) {
				now, err := p.newest(ctx)
				return now > before, err
			}))
			attack(running)
		})
	})
	must(group.Wait())
	return l
}

func (p *Pair) restartVideo(ctx context.Context, t *run) {
	p.restart(ctx, t, "video", p.VideoURL, p.Video)
}

func (p *Pair) restartCatalog(ctx context.Context, t *run) {
	p.restart(ctx, t, "catalog", p.CatalogURL, p.Catalog)
}

func (p *Pair) restart(ctx context.Context, t *run, name, url string, i *process.Instance) {
	t.atEnd(p.startAll)
	met := &shutdown{url: url}
	l := p.withoutRetries(met).during(ctx, func(context.Context) {
		t.sayf("%s drains under writes and reads.", name)
		met.begin()
		must(i.Stop())
		t.sayf("%s starts again.", name)
		must(i.Start())
	})
	r := p.agreed(ctx, l.promised)
	under, later := met.requests()
	switch {
	case l.failed > 0:
		failf("%d requests failed, the first: %w", l.failed, l.why)
	case under == 0:
		failf("no request was under way when %s was asked to end", name)
	}
	t.sawf("P12", "%d requests were under way when %s was asked to end, %d came later, and none of them or of %d writes failed.",
		under, name, later, r.Events)
}

func (p *Pair) killVideo(ctx context.Context, t *run) {
	t.atEnd(p.startAll)
	l := p.during(ctx, func(context.Context) {
		t.sayf("kill -9 of video.")
		must(p.Video.Kill())
		t.sayf("video starts again. Its relay takes over the killed one within 6 seconds.")
		must(p.Video.Start())
	})
	r := p.agreed(ctx, l.promised)
	t.sawf("P1", "%d videos have exactly the events of their versions; a kill -9 cut off writes, and clients sent them again.", r.Videos)
	t.sawf("P2", "All %d events left, and catalog has them, after a kill -9 of video.", r.Events)
	t.sawf("P3", "None of %d events was published before an earlier version, over a kill -9.", r.Events)
}

func (p *Pair) killCatalog(ctx context.Context, t *run) {
	t.atEnd(p.startAll)
	liked := got(p.create(ctx, "Liked"))
	const likes = 20
	l := p.during(ctx, func(ctx context.Context) {
		got(p.like(ctx, liked.ID, likes))
		t.sayf("kill -9 of catalog.")
		must(p.Catalog.Kill())
		t.sayf("catalog starts again.")
		must(p.Catalog.Start())
	})
	must(p.ready(ctx))
	if p.faults { // with another broker, the messages come again within half a minute
		t.sayf("It is ready. The broker's clock goes ahead by a minute: messages that were on their way to the old process come again.")
		must(p.endLeases(ctx))
		must(p.acknowledged(ctx))
	}
	r := p.agreed(ctx, l.promised)
	p.counted(ctx, liked.ID, likes)
	t.sawf("P5", "%d events and %d likes over a kill -9 of catalog: each has its effect once.", r.Events, likes)
}

// counted waits until catalog has counted all likes of a video. It fails if catalog has counted
// more.
func (p *Pair) counted(ctx context.Context, id uuid.UUID, likes int64) {
	var n int64
	must(until(ctx, fmt.Sprintf("%d likes", likes), func(ctx context.Context) (enough bool, err error) {
		n, err = p.likes(ctx, id)
		return n >= likes, err
	}))
	if n > likes {
		failf("%d likes count as %d", likes, n)
	}
}

package scenario

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/internal/local/instance"
)

// startAll starts the services that do not run, and waits until both answer.
func (p *Pair) startAll(ctx context.Context) error {
	for _, i := range []*instance.Instance{p.Video, p.Catalog} {
		if i.State().PID == 0 {
			if err := i.Start(); err != nil {
				return err
			}
		}
	}
	return p.ready(ctx)
}

// during runs an attack while clients write and read, after the first events have arrived.
// They go on until it is over.
func (p *Pair) during(ctx context.Context, attack func(context.Context) error) (l *load, err error) {
	group, running := errgroup.WithContext(ctx)
	over := make(chan struct{})
	// The writers keep ctx: an attack that fails does not cut them off.
	group.Go(func() (err error) {
		l, err = p.writes(ctx, work{videos: 120, versions: 10, during: over, eachRead: true})
		return err
	})
	group.Go(func() error {
		defer close(over)
		before, err := p.newest(running)
		if err != nil {
			return err
		}
		err = until(running, "events flow", func(ctx context.Context) (bool, error) {
			now, err := p.newest(ctx)
			return now > before, err
		})
		if err != nil {
			return err
		}
		return attack(running)
	})
	return l, group.Wait()
}

func (p *Pair) restartVideo(ctx context.Context, t *run) error {
	return p.restart(ctx, t, "video", p.VideoURL, p.Video)
}

func (p *Pair) restartCatalog(ctx context.Context, t *run) error {
	return p.restart(ctx, t, "catalog", p.CatalogURL, p.Catalog)
}

func (p *Pair) restart(ctx context.Context, t *run, name, url string, i *instance.Instance) error {
	t.mend(p.startAll)
	met := &shutdown{url: url}
	l, err := p.withoutRetries(met).during(ctx, func(context.Context) error {
		t.sayf("%s drains under writes and reads.", name)
		met.begin()
		if err := i.Stop(); err != nil {
			return err
		}
		t.sayf("%s starts again.", name)
		return i.Start()
	})
	if err != nil {
		return err
	}
	r, err := p.agreed(ctx, l.promised)
	under, later := met.requests()
	switch {
	case err != nil:
		return err
	case l.failed > 0:
		return fmt.Errorf("%d requests failed, the first: %w", l.failed, l.why)
	case under == 0:
		return fmt.Errorf("no request was under way when %s was asked to end", name)
	}
	t.sawf("P12", "%d requests were under way when %s was asked to end, %d came later, and none of them or of %d writes failed.",
		under, name, later, r.Events)
	return nil
}

func (p *Pair) killVideo(ctx context.Context, t *run) error {
	t.mend(p.startAll)
	l, err := p.during(ctx, func(context.Context) error {
		t.sayf("kill -9 of video.")
		if err := p.Video.Kill(); err != nil {
			return err
		}
		t.sayf("video starts again. The killed relay's leases end within 20 seconds.")
		return p.Video.Start()
	})
	if err != nil {
		return err
	}
	r, err := p.agreed(ctx, l.promised)
	t.sawf("P1", "%d videos have exactly the events of their versions; a kill -9 cut off writes, and clients sent them again.", r.Videos)
	t.sawf("P2", "All %d events left, and catalog has them, after a kill -9 of video.", r.Events)
	t.sawf("P3", "None of %d events was published before an earlier version, over a kill -9.", r.Events)
	return err
}

func (p *Pair) killCatalog(ctx context.Context, t *run) error {
	t.mend(p.startAll)
	liked, err := p.create(ctx, "Liked")
	if err != nil {
		return err
	}
	const likes = 20
	l, err := p.during(ctx, func(ctx context.Context) error {
		if _, err := p.like(ctx, liked.ID, likes); err != nil {
			return err
		}
		t.sayf("kill -9 of catalog.")
		if err := p.Catalog.Kill(); err != nil {
			return err
		}
		t.sayf("catalog starts again.")
		return p.Catalog.Start()
	})
	if err != nil {
		return err
	}
	if err := p.redeliver(ctx, t); err != nil {
		return err
	}
	if err := p.acknowledged(ctx); err != nil {
		return err
	}
	r, err := p.agreed(ctx, l.promised)
	if err != nil {
		return err
	}
	err = p.counted(ctx, liked.ID, likes)
	t.sawf("P5", "%d events and %d likes over a kill -9 of catalog: each has its effect once.", r.Events, likes)
	return err
}

// redeliver makes the messages that the ended process had not acknowledged come again at
// once, where the broker's clock can be moved; elsewhere they come within a minute.
func (p *Pair) redeliver(ctx context.Context, t *run) error {
	if err := p.ready(ctx); err != nil || !p.faults {
		return err
	}
	t.sayf("It is ready. The broker's clock goes ahead by a minute: messages that were on their way to the old process come again.")
	return p.endLeases(ctx)
}

// counted waits until all likes of a video have come, and fails if there are more.
func (p *Pair) counted(ctx context.Context, id uuid.UUID, likes int64) error {
	var n int64
	err := until(ctx, fmt.Sprintf("%d likes", likes), func(ctx context.Context) (enough bool, err error) {
		n, err = p.likes(ctx, id)
		return n >= likes, err
	})
	if err == nil && n > likes {
		err = fmt.Errorf("%d likes count as %d", likes, n)
	}
	return err
}

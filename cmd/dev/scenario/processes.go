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

// during runs an attack while clients write, after the first events have arrived.
func (p *Pair) during(ctx context.Context, attack func(context.Context) error) (l *load, err error) {
	group, running := errgroup.WithContext(ctx)
	// The writers keep ctx: an attack that fails does not cut them off.
	group.Go(func() (err error) {
		l, err = p.writes(ctx, 120, 10)
		return err
	})
	group.Go(func() error {
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
	return p.restart(ctx, t, "video", p.Video)
}

func (p *Pair) restartCatalog(ctx context.Context, t *run) error {
	return p.restart(ctx, t, "catalog", p.Catalog)
}

func (p *Pair) restart(ctx context.Context, t *run, name string, i *instance.Instance) error {
	t.mend(p.startAll)
	l, err := p.withoutRetries().during(ctx, func(context.Context) error {
		t.sayf("%s drains under writes.", name)
		if err := i.Stop(); err != nil {
			return err
		}
		t.sayf("%s starts again.", name)
		return i.Start()
	})
	if err != nil {
		return err
	}
	if err := p.redeliver(ctx, t); err != nil {
		return err
	}
	r, err := p.agreed(ctx, l.ids)
	if err == nil && l.failed > 0 {
		err = fmt.Errorf("%d requests failed, the first: %w", l.failed, l.why)
	}
	t.sawf("P12", "%s was replaced during %d writes, and no request failed.", name, r.Events)
	return err
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
	r, err := p.agreed(ctx, l.ids)
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
	r, err := p.agreed(ctx, l.ids)
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

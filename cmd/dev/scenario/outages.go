package scenario

import (
	"context"
	"fmt"
	"net/http"

	"example.com/lockstep/internal/walk"
)

func (p *Pair) brokerOutage(ctx context.Context, t *run) error {
	t.mend(p.withoutFaults)
	if err := p.setFaults(ctx, fault{Kind: "outage"}); err != nil {
		return err
	}
	t.sayf("The broker answers nothing.")
	l, err := p.writes(ctx, work{videos: 30, versions: 5})
	if err != nil {
		return err
	}
	waiting, err := p.pending(ctx, l.promised.ids())
	if err != nil {
		return err
	}
	used, err := p.attempts(ctx, l.promised.ids())
	switch {
	case err != nil:
		return err
	case waiting == 0 || used > 0 || l.failed > 0:
		return fmt.Errorf("%d events wait, %d attempts are used up, %d requests failed", waiting, used, l.failed)
	}
	t.sayf("%d events wait, and none has used up an attempt. The broker is back.", waiting)
	if err := p.setFaults(ctx); err != nil {
		return err
	}
	r, err := p.agreed(ctx, l.promised)
	t.sawf("P2", "%d events waited for the broker, used up no attempt, and all %d are in catalog.", waiting, r.Events)
	return err
}

func (p *Pair) ownerOutage(ctx context.Context, t *run) error {
	t.mend(p.startAll)
	t.mend(p.withoutFaults)
	v, err := p.withheld(ctx, t, func(v video) (video, error) { return p.update(ctx, v.ID, 2) })
	if err != nil {
		return err
	}
	old, err := p.read(ctx, v.ID, "", 0)
	if err != nil {
		return err
	}
	refused, err := p.read(ctx, v.ID, v.Token, 0)
	if err != nil {
		return err
	}
	if old.status != http.StatusOK || refused.status != http.StatusServiceUnavailable {
		return fmt.Errorf("a read without a token answered %d, and one with a token %d", old.status, refused.status)
	}
	t.sayf("A read without a token had version %d, and one with the token of version %d was refused. video is back.", old.Version, v.Version)
	if err := p.setFaults(ctx); err != nil {
		return err
	}
	if err := p.Video.Start(); err != nil {
		return err
	}
	if err := walk.AwaitReady(ctx, "video", p.VideoURL); err != nil {
		return err
	}
	got, err := p.fresh(ctx, v, 10)
	t.sawf("P8", "Without its owner catalog refused the token of version %d rather than answer version %d; then it answered version %d.",
		v.Version, old.Version, got.Version)
	return err
}

func (p *Pair) postgresOutage(ctx context.Context, t *run) error {
	away := false
	restore := func(ctx context.Context) error {
		if !away {
			return nil
		}
		away = false
		return p.Postgres.Recover(ctx)
	}
	t.mend(p.ready)
	t.mend(restore)
	l, err := p.during(ctx, func(ctx context.Context) error {
		t.sayf("Postgres crashes.")
		away = true
		if err := p.Postgres.Crash(); err != nil {
			return err
		}
		t.sayf("Postgres is away. It recovers from its log.")
		return restore(ctx)
	})
	if err != nil {
		return err
	}
	r, err := p.agreed(ctx, l.promised)
	t.sawf("P1", "%d videos have exactly the events of their versions; a crash of Postgres failed %d requests.", r.Videos, l.failed)
	t.sawf("P2", "All %d events left, and catalog has them, after a crash of Postgres.", r.Events)
	return err
}

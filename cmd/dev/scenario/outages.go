package scenario

import (
	"context"
	"net/http"

	"example.com/lockstep/internal/walk"
)

func (p *Pair) brokerOutage(ctx context.Context, t *run) {
	t.atEnd(p.withoutFaults)
	must(p.setFaults(ctx, fault{Kind: "outage"}))
	t.sayf("The broker answers nothing.")
	l := got(p.writes(ctx, work{videos: 30, versions: 5}))
	waiting, used := got(p.pending(ctx, l.promised.ids())), got(p.attempts(ctx, l.promised.ids()))
	if waiting == 0 || used > 0 || l.failed > 0 {
		failf("%d events wait, %d attempts are used up, %d requests failed", waiting, used, l.failed)
	}
	t.sayf("%d events wait, and none has used up an attempt. The broker is back.", waiting)
	must(p.withoutFaults(ctx))
	r := p.agreed(ctx, l.promised)
	t.sawf("P2", "%d events waited for the broker, used up no attempt, and all %d are in catalog.", waiting, r.Events)
}

func (p *Pair) ownerOutage(ctx context.Context, t *run) {
	v := p.withheld(ctx, t, func(v video) video { return got(p.update(ctx, v.ID, 2)) })
	old := got(p.read(ctx, v.ID, "", 0))
	refused := got(p.read(ctx, v.ID, v.Token, 0))
	if old.Status != http.StatusOK || refused.Status != http.StatusServiceUnavailable {
		failf("a read without a token answered %d, and one with a token %d", old.Status, refused.Status)
	}
	t.sayf("A read without a token had version %d, and one with the token of version %d was refused. video is back.", old.Version, v.Version)
	must(p.withoutFaults(ctx))
	must(p.Video.Start())
	must(walk.AwaitReady(ctx, "video", p.VideoURL))
	seen := got(p.fresh(ctx, v, 10))
	t.sawf("P8", "Without its owner catalog refused the token of version %d rather than answer version %d; then it answered version %d.",
		v.Version, old.Version, seen.Version)
}

func (p *Pair) postgresOutage(ctx context.Context, t *run) {
	away := false
	restore := func(ctx context.Context) error {
		if !away {
			return nil
		}
		away = false
		return p.Postgres.Recover(ctx)
	}
	t.atEnd(p.ready)
	t.atEnd(restore)
	l := p.during(ctx, func(ctx context.Context) {
		t.sayf("Postgres crashes.")
		away = true
		must(p.Postgres.Crash())
		t.sayf("Postgres is away. It recovers from its log.")
		must(restore(ctx))
	})
	r := p.agreed(ctx, l.promised)
	t.sawf("P1", "%d videos have exactly the events of their versions; a crash of Postgres failed %d requests.", r.Videos, l.failed)
	t.sawf("P2", "All %d events left, and catalog has them, after a crash of Postgres.", r.Events)
}

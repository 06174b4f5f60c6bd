package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/backlog"
)

func (p *Pair) duplicates(ctx context.Context, t *run) error {
	t.mend(p.withoutFaults)
	if err := p.setFaults(ctx, fault{Kind: "repeat"}); err != nil {
		return err
	}
	t.sayf("The broker takes every event twice.")
	v, err := p.create(ctx, "Liked")
	if err != nil {
		return err
	}
	const likes = 20
	liked, err := p.like(ctx, v.ID, likes)
	if err != nil {
		return err
	}
	if err := p.counted(ctx, v.ID, likes); err != nil {
		return err
	}
	t.sayf("%d likes are counted. Their events come once more, each twice.", likes)
	events, err := p.events(ctx, "engagement", liked...)
	if err != nil {
		return err
	}
	before, err := p.repeated(ctx)
	if err != nil {
		return err
	}
	if err := p.publish(ctx, topics.Engagement, unordered(events)...); err != nil {
		return err
	}
	err = until(ctx, "catalog has got the duplicates", func(ctx context.Context) (bool, error) {
		now, err := p.repeated(ctx)
		return now >= before+likes, err
	})
	if err != nil {
		return err
	}
	if _, err := p.agreed(ctx, promised{v.ID: v.Version}); err != nil {
		return err
	}
	err = p.counted(ctx, v.ID, likes)
	t.sawf("P5", "The event of each like came four times, and %d likes count as %d.", likes, likes)
	return err
}

// repeated counts the duplicates that catalog's process has got.
func (p *Pair) repeated(ctx context.Context) (float64, error) {
	m, err := p.scrape(ctx, p.CatalogURL)
	return m.Sum("inbox_events_total", `outcome="duplicate"`), err
}

// withheld makes the events of one video that the relay does not send: the broker refuses
// them until video has handed back its leases and ended.
func (p *Pair) withheld(ctx context.Context, t *run, change func(video) (video, error)) (v video, err error) {
	if v, err = p.create(ctx, "First cut"); err != nil {
		return v, err
	}
	if err := p.settled(ctx, v.ID); err != nil {
		return v, err
	}
	if err := p.setFaults(ctx, fault{Kind: "outage", Method: "Publish"}); err != nil {
		return v, err
	}
	if v, err = change(v); err != nil {
		return v, err
	}
	t.sayf("Version %d is in the outbox. video ends, with nothing of it sent.", v.Version)
	return v, p.Video.Stop()
}

func (p *Pair) reorder(ctx context.Context, t *run) error {
	t.mend(p.startAll)
	t.mend(p.withoutFaults)
	v, err := p.withheld(ctx, t, func(v video) (_ video, err error) {
		for k := range 3 {
			if v, err = p.update(ctx, v.ID, k); err != nil {
				return v, err
			}
		}
		return p.remove(ctx, v.ID)
	})
	if err != nil {
		return err
	}
	if err := p.reverse(ctx, t, v); err != nil {
		return err
	}
	err = until(ctx, "every event is settled", func(ctx context.Context) (bool, error) {
		n, err := p.inbox(ctx, v.ID, "done")
		return n == v.Version, err
	})
	if err != nil {
		return err
	}
	got, err := p.read(ctx, v.ID, "", 0)
	if err == nil && (got.status != http.StatusGone || got.Version != v.Version) {
		err = fmt.Errorf("the video of version %d was deleted, and a read answers %d with version %d", v.Version, got.status, got.Version)
	}
	t.sawf("P6", "%d events in reverse, each twice: catalog says that version %d is deleted, as the owner does.", v.Version, v.Version)
	return err
}

// reverse sends the withheld events of a video in the place of the relay, the last one first.
func (p *Pair) reverse(ctx context.Context, t *run, v video) error {
	events, err := p.events(ctx, "video", v.ID.String())
	if err != nil {
		return err
	}
	for _, e := range events[1:] {
		if err := p.lose(ctx, v.ID, e.Version); err != nil {
			return err
		}
	}
	if err := p.setFaults(ctx, fault{Kind: "reorder"}); err != nil {
		return err
	}
	if err := p.startAll(ctx); err != nil {
		return err
	}
	t.sayf("The events come in reverse, each twice.")
	slices.Reverse(events)
	return p.publish(ctx, topics.Video, slices.Concat(unordered(events), unordered(events))...)
}

// unordered are messages that the broker may deliver in any order.
func unordered(events []eventing.Event) (messages []*pubsubpb.PubsubMessage) {
	for _, e := range events {
		m := e.Message()
		m.OrderingKey = ""
		messages = append(messages, m)
	}
	return messages
}

func (p *Pair) gap(ctx context.Context, t *run) error {
	t.mend(p.startAll)
	t.mend(p.withoutFaults)
	v, err := p.withheld(ctx, t, func(v video) (video, error) {
		_, err := p.write(ctx, http.MethodPatch, "/v1/videos/"+v.ID.String(), `{"title":"only in version 2"}`)
		if err != nil {
			return v, err
		}
		return p.update(ctx, v.ID, 3)
	})
	if err != nil {
		return err
	}
	if err := p.lose(ctx, v.ID, 2); err != nil {
		return err
	}
	if err := p.setFaults(ctx); err != nil {
		return err
	}
	t.sayf("Version 2 is lost. video starts again and sends version 3.")
	if err := p.startAll(ctx); err != nil {
		return err
	}
	if err := p.settled(ctx, v.ID); err != nil {
		return err
	}
	got, err := p.read(ctx, v.ID, "", 0)
	if err == nil && (got.Title != "only in version 2" || got.Source != "projection") {
		err = fmt.Errorf("the title is %q, from the %s", got.Title, got.Source)
	}
	t.sawf("P7", "The event of version 2 was lost, and catalog's version %d has its title: it came from the owner.", got.Version)
	return err
}

func (p *Pair) poison(ctx context.Context, t *run) error {
	v, err := p.create(ctx, "Poisoned")
	if err != nil {
		return err
	}
	if err := p.settled(ctx, v.ID); err != nil {
		return err
	}
	events, err := p.events(ctx, "video", v.ID.String())
	if err != nil || len(events) == 0 {
		return errors.Join(errors.New("no event to change"), err)
	}
	// The schema of the topic accepts this; it is no change of a video.
	bad := events[0]
	bad.ID, bad.Version, bad.Type, bad.Payload = uuid.New(), 2, "VideoUpdated", []byte("\x0a\x07garbled")
	if err := p.publish(ctx, topics.Video, bad.Message()); err != nil {
		return err
	}
	t.sayf("A garbled message claims to be version 2. The owner writes the real one.")
	if v, err = p.update(ctx, v.ID, 2); err != nil {
		return err
	}
	if _, err := p.fresh(ctx, v, 10); err != nil {
		return err
	}
	err = until(ctx, "the message is in the dead letters", func(ctx context.Context) (bool, error) {
		n, err := p.inbox(ctx, v.ID, "dead")
		return n == 1, err
	})
	if err != nil {
		return err
	}
	_, err = p.agreed(ctx, promised{v.ID: v.Version})
	t.sawf("P9", "The garbled message is a dead letter, and the real version %d is in catalog.", v.Version)
	return err
}

func (p *Pair) refuse(ctx context.Context, t *run) error {
	t.mend(p.withoutFaults)
	v, err := p.create(ctx, "Refused")
	if err != nil {
		return err
	}
	if err := p.settled(ctx, v.ID); err != nil {
		return err
	}
	if err := p.setFaults(ctx, fault{Kind: "reject", Key: v.ID.String()}); err != nil {
		return err
	}
	for k := range 3 {
		if v, err = p.update(ctx, v.ID, k); err != nil {
			return err
		}
	}
	t.sayf("The broker refuses one video. Its event is parked after five refusals, with pauses between them.")
	var event uuid.UUID
	err = until(ctx, "the event is parked", func(ctx context.Context) (found bool, err error) {
		event, found, err = p.parked(ctx, v.ID)
		return found, err
	})
	if err != nil {
		return err
	}
	others, err := p.writes(ctx, work{videos: 20, versions: 3})
	if err != nil {
		return err
	}
	if _, err := p.agreed(ctx, others.promised); err != nil {
		return err
	}
	waiting, err := p.pending(ctx, []uuid.UUID{v.ID})
	if err != nil {
		return err
	}
	t.sayf("It is parked, and 60 events of others have left. The broker takes it again, and an operator's retry frees it.")
	if err := p.setFaults(ctx); err != nil {
		return err
	}
	if err := p.retry(ctx, event); err != nil {
		return err
	}
	_, err = p.agreed(ctx, promised{v.ID: v.Version})
	t.sawf("P4", "While %d events of one video waited, 60 of others left; after a retry they left in order.", waiting)
	return err
}

// retry frees a parked event, as `video outbox retry` does.
func (p *Pair) retry(ctx context.Context, event uuid.UUID) error {
	db, err := pgxpool.New(ctx, p.OwnerURL)
	if err != nil {
		return err
	}
	defer db.Close()
	return backlog.New(db).RetryOne(ctx, audit.Actor{By: "the live page", Why: "the refusal was a scenario"}, event)
}

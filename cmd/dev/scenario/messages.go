package scenario

import (
	"context"
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

func (p *Pair) duplicates(ctx context.Context, t *run) {
	t.atEnd(p.withoutFaults)
	must(p.setFaults(ctx, fault{Kind: "repeat"}))
	t.sayf("The broker takes every event twice.")
	v := got(p.create(ctx, "Liked"))
	const likes = 20
	liked := got(p.like(ctx, v.ID, likes))
	p.counted(ctx, v.ID, likes)
	t.sayf("%d likes are counted. Their events come once more, each twice.", likes)
	const kind = "engagement"
	events := got(p.events(ctx, kind, liked...))
	before := got(p.repeated(ctx))
	must(p.publish(ctx, topicOf(kind), unordered(events)...))
	must(until(ctx, "catalog has got the duplicates", func(ctx context.Context) (bool, error) {
		now, err := p.repeated(ctx)
		return now >= before+likes, err
	}))
	p.agreed(ctx, promised{v.ID: v.Version})
	p.counted(ctx, v.ID, likes)
	t.sawf("P5", "The event of each like came four times, and %d likes count as %d.", likes, likes)
}

// topicOf returns the name of the topic for a kind of aggregate.
func topicOf(kind string) string {
	return topics.All[slices.IndexFunc(topics.All, func(t topics.Topic) bool { return t.Aggregate == kind })].Name
}

// repeated returns the number of duplicates that the present process of catalog has received.
func (p *Pair) repeated(ctx context.Context) (float64, error) {
	m, err := p.scrape(ctx, p.CatalogURL)
	return m.Sum("inbox_events_total", `outcome="duplicate"`), err
}

// withheld creates a video, and changes it by the function change. The broker refuses the events of
// the change until video has ended. Before it ends, video hands back its leases on the events. So
// the events stay in the outbox.
func (p *Pair) withheld(ctx context.Context, t *run, change func(video) video) video {
	t.atEnd(p.startAll)
	t.atEnd(p.withoutFaults)
	v := got(p.create(ctx, "First cut"))
	must(p.settled(ctx, v.ID))
	must(p.setFaults(ctx, fault{Kind: "outage", Method: "Publish"}))
	v = change(v)
	t.sayf("Version %d is in the outbox. video ends, with nothing of it sent.", v.Version)
	must(p.Video.Stop())
	return v
}

func (p *Pair) reorder(ctx context.Context, t *run) {
	v := p.withheld(ctx, t, func(v video) video {
		for k := range 3 {
			got(p.update(ctx, v.ID, k))
		}
		return got(p.remove(ctx, v.ID))
	})
	p.reverse(ctx, t, v)
	must(until(ctx, "every event is settled", func(ctx context.Context) (bool, error) {
		n, err := p.inbox(ctx, v.ID, "done")
		return n == v.Version, err
	}))
	seen := got(p.read(ctx, v.ID, "", 0))
	if seen.Status != http.StatusGone || seen.Version != v.Version {
		failf("the video of version %d was deleted, and a read answers %d with version %d", v.Version, seen.Status, seen.Version)
	}
	t.sawf("P6", "%d events in reverse, each twice: catalog says that version %d is deleted, as the owner does.", v.Version, v.Version)
}

// reverse sends the withheld events of a video itself, in place of the relay. It sends the last
// event first.
func (p *Pair) reverse(ctx context.Context, t *run, v video) {
	events := got(p.events(ctx, "video", v.ID.String()))
	for _, e := range events[1:] {
		must(p.lose(ctx, v.ID, e.Version))
	}
	must(p.setFaults(ctx, fault{Kind: "reorder"}))
	must(p.startAll(ctx))
	t.sayf("The events come in reverse, each twice.")
	slices.Reverse(events)
	must(p.publish(ctx, topics.Video, slices.Concat(unordered(events), unordered(events))...))
}

// unordered returns the events as messages without an ordering key. So the broker may deliver them
// in any order.
func unordered(events []eventing.Event) (messages []*pubsubpb.PubsubMessage) {
	for _, e := range events {
		m := e.Message()
		m.OrderingKey = ""
		messages = append(messages, m)
	}
	return messages
}

func (p *Pair) gap(ctx context.Context, t *run) {
	v := p.withheld(ctx, t, func(v video) video {
		got(p.write(ctx, http.MethodPatch, "/v1/videos/"+v.ID.String(), `{"title":"only in version 2"}`))
		return got(p.update(ctx, v.ID, 3))
	})
	must(p.lose(ctx, v.ID, 2))
	must(p.withoutFaults(ctx))
	t.sayf("Version 2 is lost. video starts again and sends version 3.")
	must(p.startAll(ctx))
	must(p.settled(ctx, v.ID))
	seen := got(p.read(ctx, v.ID, "", 0))
	if seen.Title != "only in version 2" || seen.Source != "projection" {
		failf("the title is %q, from the %s", seen.Title, seen.Source)
	}
	t.sawf("P7", "The event of version 2 was lost, and catalog's version %d has its title: it came from the owner.", seen.Version)
}

func (p *Pair) poison(ctx context.Context, t *run) {
	v := got(p.create(ctx, "Poisoned"))
	must(p.settled(ctx, v.ID))
	events := got(p.events(ctx, "video", v.ID.String()))
	if len(events) == 0 {
		failf("no event to change")
	}
	// The schema of the topic accepts this payload. But the payload is not a change of a video.
	bad := events[0]
	bad.ID, bad.Version, bad.Type, bad.Payload = uuid.New(), 2, "VideoUpdated", []byte("\x0a\x07garbled")
	must(p.publish(ctx, topics.Video, bad.Message()))
	t.sayf("A garbled message claims to be version 2. The owner writes the real one.")
	v = got(p.update(ctx, v.ID, 2))
	got(p.fresh(ctx, v, 10))
	must(until(ctx, "the message is in the dead letters", func(ctx context.Context) (bool, error) {
		n, err := p.inbox(ctx, v.ID, "dead")
		return n == 1, err
	}))
	p.agreed(ctx, promised{v.ID: v.Version})
	t.sawf("P9", "The garbled message is a dead letter, and the real version %d is in catalog.", v.Version)
}

func (p *Pair) refuse(ctx context.Context, t *run) {
	t.atEnd(p.withoutFaults)
	v := got(p.create(ctx, "Refused"))
	must(p.settled(ctx, v.ID))
	must(p.setFaults(ctx, fault{Kind: "reject", Key: v.ID.String()}))
	for k := range 3 {
		v = got(p.update(ctx, v.ID, k))
	}
	t.sayf("The broker refuses one video. Its event is parked after five refusals, with pauses between them.")
	var event *uuid.UUID
	must(until(ctx, "the event is parked", func(ctx context.Context) (_ bool, err error) {
		event, err = p.parked(ctx, v.ID)
		return event != nil, err
	}))
	others := got(p.writes(ctx, work{videos: 20, versions: 3}))
	p.agreed(ctx, others.promised)
	waiting := got(p.pending(ctx, []uuid.UUID{v.ID}))
	t.sayf("It is parked, and 60 events of others have left. The broker takes it again, and an operator's retry frees it.")
	must(p.withoutFaults(ctx))
	must(p.retry(ctx, *event))
	p.agreed(ctx, promised{v.ID: v.Version})
	t.sawf("P4", "While %d events of one video waited, 60 of others left; after a retry they left in order.", waiting)
}

// retry makes the relay send a parked event again, like `video outbox retry`.
func (p *Pair) retry(ctx context.Context, event uuid.UUID) error {
	db, err := pgxpool.New(ctx, p.OwnerURL)
	if err != nil {
		return err
	}
	defer db.Close()
	return backlog.New(db).RetryOne(ctx, audit.Actor{By: "the live page", Why: "the refusal was a scenario"}, event)
}

package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing/inbox"
)

// instances is the number of instances of a consumer that share the events of engagements.
const instances = 3

// counters measures the cost of the counters that each engagement changes. In one measurement the
// engagements are spread over many videos. In another one all engagements are of one video.
func counters() measure.Series {
	return measure.Series{
		Title: "inbox: counters of videos, three instances",
		Measurements: []measure.Measurement{
			engaged("inbox.engagements_uncounted", "ours, without the triggers that count", 1_000, false),
			engaged("inbox.engagements", "ours, 1,000 videos", 1_000, true),
			engaged("inbox.engagements_hot", "ours, one video", 1, true),
		},
		Derived: []measure.Derived{
			measure.Ratio("inbox.counters", "inbox.engagements", "inbox.engagements_uncounted", ""),
			measure.Ratio("inbox.counters_hot", "inbox.engagements_hot", "inbox.engagements_uncounted", ""),
		},
	}
}

// engaged returns a measurement of the instances in an unused database. If count is false, the
// triggers that count are dropped.
func engaged(name, note string, videos int, count bool) measure.Measurement {
	return measure.Measurement{
		Figures: []measure.Figure{{Name: name, Unit: "event/s", Note: note}},
		Run: measure.Single(eventCounts, func(ctx context.Context, n int) (_ float64, err error) {
			m, err := rig.StartReadModel(ctx)
			if err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, m.Close()) }()
			if !count {
				_, err := m.Admin.Exec(ctx, `
					DROP TRIGGER count_inserted ON catalog.video_user_engagements_projection;
					DROP TRIGGER count_updated ON catalog.video_user_engagements_projection`)
				if err != nil {
					return 0, err
				}
			}
			messages, err := engagementMessages(n, videos)
			if err != nil {
				return 0, err
			}
			return shared(ctx, m, messages)
		}),
	}
}

// engagementMessages returns n messages in equal parts for the instances. The messages of an
// instance are version 1 of all its engagements, then version 2, and so on.
func engagementMessages(n, videos int) (messages [instances][]*pubsub.Message, err error) {
	ids, n := make([]uuid.UUID, videos), n/instances
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	for i := range messages {
		users := make([]uuid.UUID, n/eventsPerVideo)
		for u := range users {
			users[u] = uuid.New()
		}
		for version := range int64(eventsPerVideo) {
			for u, user := range users {
				e, err := rig.EngagementEvent(user, ids[u%videos], version+1)
				if err != nil {
					return messages, err
				}
				messages[i] = append(messages[i], rig.Message(e, fmt.Sprint(i, len(messages[i]))))
			}
		}
	}
	return messages, nil
}

// shared returns the rate at which the instances apply their messages from memory.
func shared(ctx context.Context, m *rig.ReadModel, messages [instances][]*pubsub.Message) (float64, error) {
	var running errgroup.Group
	start := time.Now()
	for _, part := range messages {
		f, err := startFed(ctx, m, inbox.Options{})
		if err != nil {
			return 0, errors.Join(err, running.Wait())
		}
		running.Go(func() error {
			_, err := f.apply(part)
			return errors.Join(err, f.close())
		})
	}
	err := running.Wait()
	return measure.PerSecond(instances*len(messages[0]), start), err
}

package inbox

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

// eventsPerVideo is the number of versions of each video.
const eventsPerVideo = 4

// videoMessages returns n messages: version 1 of every video, then version 2,
// and so on.
func videoMessages(n int) ([]*pubsub.Message, error) {
	ids := make([]uuid.UUID, n/eventsPerVideo)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	var messages []*pubsub.Message
	for version := range int64(eventsPerVideo) {
		for _, id := range ids {
			e, err := rig.VideoEvent(id, version+1)
			if err != nil {
				return nil, err
			}
			messages = append(messages, rig.Message(e, fmt.Sprint(len(messages))))
		}
	}
	return messages, nil
}

// stored returns a function that stores the messages in a subscription of a new local Pub/Sub, and
// then calls apply.
func stored(apply func(context.Context, *rig.ReadModel, *rig.BrokerClient, int) (float64, error)) applying {
	return func(ctx context.Context, m *rig.ReadModel, messages []*pubsub.Message) (_ float64, err error) {
		b, err := rig.StartBrokerClient(ctx, true, "--kind", rig.Ours)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		if err := storeEvents(ctx, b, messages); err != nil {
			return 0, fmt.Errorf("store events: %w", err)
		}
		return apply(ctx, m, b, len(messages))
	}
}

// requests is the number of concurrent publish requests.
const requests = 8

// storeEvents publishes the messages video by video, because all messages of a request must have
// the same ordering key.
func storeEvents(ctx context.Context, b *rig.BrokerClient, messages []*pubsub.Message) error {
	videos := len(messages) / eventsPerVideo
	publishing, ctx := errgroup.WithContext(ctx)
	publishing.SetLimit(requests)
	for v := range videos {
		var request []*pubsubpb.PubsubMessage
		for version := range eventsPerVideo {
			m := messages[version*videos+v]
			request = append(request,
				&pubsubpb.PubsubMessage{Data: m.Data, Attributes: m.Attributes, OrderingKey: m.OrderingKey})
		}
		publishing.Go(func() error {
			return rig.Publish(ctx, b.Client, request...)
		})
	}
	return publishing.Wait()
}

// decodeTitle reads the part of a message that the plain loop needs.
func decodeTitle(m *pubsub.Message) (eventing.Event, string, error) {
	e, err := eventing.ParseMessage(m.Data, m.Attributes)
	if err != nil {
		return e, "", err
	}
	var envelope eventsv1.Event
	if err := proto.Unmarshal(e.Payload, &envelope); err != nil {
		return e, "", err
	}
	if c := envelope.GetCreated(); c != nil {
		return e, c.GetTitle(), nil
	}
	return e, envelope.GetUpdated().GetTitle(), nil
}

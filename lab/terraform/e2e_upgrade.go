package main

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"

	videoeventsv1 "example.com/lockstep/proto/video/events/v1"
)

// upgrade brings a project of the earlier version to the present one: a waiting
// event and the secrets survive.
func (r *rehearsal) upgrade(ctx context.Context, w *world) error {
	v := w.variables("0")
	if err := r.applyEarlier(ctx, w, v); err != nil {
		return err
	}
	const waiting = "kept"
	if err := w.publish(ctx, waiting); err != nil {
		return err
	}
	before, err := w.connectionURL()
	if err != nil {
		return err
	}
	if err := w.applyPresent(ctx, v); err != nil {
		return err
	}
	if after, err := w.connectionURL(); err != nil || before == "" || after != before {
		return errors.Join(errors.New("video's connection secret has another content"), err)
	}
	if id, err := w.pull(ctx); err != nil || id != waiting {
		return fmt.Errorf("the event that waited for catalog: %q, %w", id, err)
	}
	w.did("apply the present one", "an event that waited is there, secrets are; a second plan is empty")
	v["deletion_protection"] = false
	if err := w.module.apply(ctx, v); err != nil {
		return err
	}
	return w.module.destroy(ctx, v)
}

func (r *rehearsal) applyEarlier(ctx context.Context, w *world, v variables) error {
	if err := w.module.become(r.earlier); err != nil {
		return err
	}
	if err := w.prepare(ctx, v); err != nil {
		return err
	}
	if err := w.module.apply(ctx, v); err != nil {
		return err
	}
	w.did("apply the earlier version", r.earlier.name)
	return nil
}

// applyPresent also expects that the plan before it loses no data, and that the
// one after it is empty.
func (w *world) applyPresent(ctx context.Context, v variables) error {
	if err := w.module.becomePresent(); err != nil {
		return err
	}
	seen, err := w.module.keepsData(ctx, v)
	if err != nil {
		return err
	}
	w.did("plan the present one", seen)
	if err := w.module.apply(ctx, v); err != nil {
		return err
	}
	return w.module.settled(ctx, v)
}

// connectionURL is the URL in video's connection secret, as an instance sees it.
func (w *world) connectionURL() (string, error) {
	c, err := w.fake.Container(cloudRun + "/services/video")
	return c.Environment["DATABASE_URL"], err
}

func (w *world) publish(ctx context.Context, id string) error {
	payload, err := proto.Marshal(&videoeventsv1.Event{EventId: id})
	if err != nil {
		return err
	}
	conn, err := w.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pubsubpb.NewPublisherClient(conn).Publish(ctx, &pubsubpb.PublishRequest{
		Topic:    "projects/" + projectID + "/topics/video.events",
		Messages: []*pubsubpb.PubsubMessage{{Data: payload, OrderingKey: id}},
	})
	return err
}

// pull returns the id of the event that waits for catalog.
func (w *world) pull(ctx context.Context) (string, error) {
	conn, err := w.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer, err := pubsubpb.NewSubscriberClient(conn).Pull(ctx, &pubsubpb.PullRequest{
		Subscription: "projects/" + projectID + "/subscriptions/video.events.catalog", MaxMessages: 1,
	})
	if err != nil {
		return "", err
	}
	if len(answer.GetReceivedMessages()) == 0 {
		return "", errors.New("no message")
	}
	var event videoeventsv1.Event
	err = proto.Unmarshal(answer.GetReceivedMessages()[0].GetMessage().GetData(), &event)
	return event.GetEventId(), err
}

package main

import (
	"context"
	"errors"
	"fmt"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/topics"
	videoeventsv1 "example.com/lockstep/proto/video/events/v1"
)

// upgrade brings a project from the earlier version to the present version. It expects that a
// waiting event and the secrets survive.
func (r *e2eRun) upgrade(ctx context.Context, p *testProject) error {
	v := p.variables("0")
	if err := r.applyEarlier(ctx, p, v); err != nil {
		return err
	}
	const waiting = "kept"
	if err := p.publish(ctx, waiting); err != nil {
		return err
	}
	before, err := p.connectionURL()
	if err != nil {
		return err
	}
	if err := p.applyPresent(ctx, v); err != nil {
		return err
	}
	if after, err := p.connectionURL(); err != nil || before == "" || after != before {
		return errors.Join(errors.New("video's connection secret has another content"), err)
	}
	if id, err := p.pull(ctx); err != nil || id != waiting {
		return fmt.Errorf("the event that waited for catalog: %q, %w", id, err)
	}
	p.did("apply the present one", "an event that waited is there, secrets are; a second plan is empty")
	v["deletion_protection"], v["metrics_sidecar_image"] = false, ""
	if err := p.module.apply(ctx, v); err != nil {
		return err
	}
	if err := p.module.expectEmptyPlan(ctx, v); err != nil {
		return err
	}
	p.did("apply without the collector", "with alerts on log lines; a second plan is empty")
	return p.module.destroy(ctx, v)
}

func (r *e2eRun) applyEarlier(ctx context.Context, p *testProject, v variables) error {
	if err := p.module.replaceBy(r.earlier); err != nil {
		return err
	}
	if err := p.prepare(ctx, v); err != nil {
		return err
	}
	if err := p.module.apply(ctx, v); err != nil {
		return err
	}
	p.did("apply the earlier version", r.earlier.name)
	return nil
}

// applyPresent applies the present version. It expects that the plan before the apply loses no
// data, and that the plan after the apply is empty.
func (p *testProject) applyPresent(ctx context.Context, v variables) error {
	if err := p.module.restorePresent(); err != nil {
		return err
	}
	seen, err := p.module.keepsData(ctx, v)
	if err != nil {
		return err
	}
	p.did("plan the present one", seen)
	if err := p.module.apply(ctx, v); err != nil {
		return err
	}
	return p.module.expectEmptyPlan(ctx, v)
}

// connectionURL returns the URL in the connection secret of video, as an instance gets it.
func (p *testProject) connectionURL() (string, error) {
	c, err := p.fake.Container(cloudRun + "/services/video")
	return c.Environment["DATABASE_URL"], err
}

func (p *testProject) publish(ctx context.Context, id string) error {
	payload, err := proto.Marshal(&videoeventsv1.Event{EventId: id})
	if err != nil {
		return err
	}
	conn, err := p.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pubsubpb.NewPublisherClient(conn).Publish(ctx, &pubsubpb.PublishRequest{
		Topic:    topics.InProject(projectID, topics.Video),
		Messages: []*pubsubpb.PubsubMessage{{Data: payload, OrderingKey: id}},
	})
	return err
}

// pull returns the id of the event that waits for catalog.
func (p *testProject) pull(ctx context.Context) (string, error) {
	conn, err := p.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer, err := pubsubpb.NewSubscriberClient(conn).Pull(ctx, &pubsubpb.PullRequest{
		Subscription: "projects/" + projectID + "/subscriptions/" + topics.Subscription(topics.Video, topics.Catalog), MaxMessages: 1,
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

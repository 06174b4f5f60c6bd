package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// migrationJobs must succeed before their service is changed.
var migrationJobs = []string{"catalog-migrate", "video-migrate"}

// fresh is the life of a new project: created, used, changed, destroyed.
func (r *rehearsal) fresh(ctx context.Context, w *world) error {
	v := w.variables("0")
	if err := w.prepare(ctx, v); err != nil {
		return err
	}
	if err := w.module.apply(ctx, v); err != nil {
		return err
	}
	w.did("apply", fmt.Sprintf("%d resources besides grants", len(w.fake.Remaining())))
	if jobs := w.ran(); !slices.Equal(jobs, migrationJobs) {
		return fmt.Errorf("the apply ran the jobs %v, want %v", jobs, migrationJobs)
	}
	if err := w.check(ctx, v, r.update); err != nil {
		return err
	}
	seen, err := w.walkThrough(ctx)
	if err != nil {
		return fmt.Errorf("walk-through: %w", err)
	}
	w.did("walk-through", seen)
	if err := w.release(ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return w.tearDown(ctx, w.variables("1"))
}

// check checks the result of a first apply from all sides.
func (w *world) check(ctx context.Context, v variables, update bool) error {
	if err := w.module.settled(ctx, v); err != nil {
		return err
	}
	w.did("second plan", "empty")
	seen, err := sameRequests(w.fake.Requests(), update)
	if err != nil {
		return err
	}
	w.did("requests", seen)
	grants := asListed(w.fake.Grants())
	if err := sameGrants(w.module, grants); err != nil {
		return err
	}
	w.did("grants", fmt.Sprintf("%d, as in %s", len(grants), grantsFile))
	seen, err = w.sameAsProvisioned(ctx)
	if err != nil {
		return err
	}
	w.did("cmd/dev provision", seen)
	return nil
}

// release deploys other images: migrations run again, and all data stays.
func (w *world) release(ctx context.Context) error {
	v := w.variables("1")
	seen, err := w.module.keepsData(ctx, v)
	if err != nil {
		return err
	}
	if err := w.failedRelease(ctx, v); err != nil {
		return err
	}
	if jobs, want := w.ran(), append([]string{migrationJobs[0]}, migrationJobs...); !slices.Equal(jobs, want) {
		return fmt.Errorf("it ran the jobs %v, want %v: catalog's again, to start it again", jobs, want)
	}
	w.did("other images", seen)
	if err := w.module.settled(ctx, v); err != nil {
		return err
	}
	return w.failedCreation(ctx, v)
}

// tearDown first expects a refusal, which is the purpose of the protection.
func (w *world) tearDown(ctx context.Context, v variables) error {
	err := w.module.destroy(ctx, v)
	if err == nil || !strings.Contains(err.Error(), "deletion_p") {
		return fmt.Errorf("destroy with deletion_protection: %w, want it refused", err)
	}
	if topics, subscriptions, err := w.pubsubNames(ctx); err != nil || len(topics) != 4 || len(subscriptions) != 4 {
		return fmt.Errorf("after a destroy that was refused: topics %v, subscriptions %v, %w", topics, subscriptions, err)
	}
	w.did("destroy, protected", "refused; topics and subscriptions are there")
	v["deletion_protection"] = false
	if err := w.module.apply(ctx, v); err != nil {
		return err
	}
	if err := w.module.destroy(ctx, v); err != nil {
		return err
	}
	topics, subscriptions, err := w.pubsubNames(ctx)
	if err != nil {
		return err
	}
	if left := slices.Concat(w.fake.Remaining(), asListed(w.fake.Grants()), topics, subscriptions); len(left) > 0 {
		return errors.New("destroy left behind: " + strings.Join(left, ", "))
	}
	w.did("destroy", "nothing is left, in Pub/Sub neither")
	return nil
}

func (w *world) pubsubNames(ctx context.Context) (topics, subscriptions []string, err error) {
	conn, err := w.dial()
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	project := "projects/" + projectID
	made, err := pubsubpb.NewPublisherClient(conn).ListTopics(ctx, &pubsubpb.ListTopicsRequest{Project: project})
	if err != nil {
		return nil, nil, err
	}
	for _, t := range made.GetTopics() {
		topics = append(topics, t.GetName())
	}
	subscribed, err := pubsubpb.NewSubscriberClient(conn).ListSubscriptions(ctx, &pubsubpb.ListSubscriptionsRequest{Project: project})
	for _, s := range subscribed.GetSubscriptions() {
		subscriptions = append(subscriptions, s.GetName())
	}
	return topics, subscriptions, err
}

func (w *world) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(w.pubsub.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
}

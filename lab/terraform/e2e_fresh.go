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

// migrationJobs are the jobs that must succeed before the service of the job is changed.
var migrationJobs = []string{"catalog-migrate", "video-migrate"}

// fresh creates a new project, uses it, changes it and destroys it.
func (r *e2eRun) fresh(ctx context.Context, p *testProject) error {
	v := p.variables("0")
	if err := p.prepare(ctx, v); err != nil {
		return err
	}
	if err := p.module.apply(ctx, v); err != nil {
		return err
	}
	p.did("apply", fmt.Sprintf("%d resources besides grants", len(p.fake.Remaining())))
	if jobs := p.ran(); !slices.Equal(jobs, migrationJobs) {
		return fmt.Errorf("the apply ran the jobs %v, want %v", jobs, migrationJobs)
	}
	if err := p.check(ctx, v, r.update); err != nil {
		return err
	}
	seen, err := p.walkThrough(ctx)
	if err != nil {
		return fmt.Errorf("walk-through: %w", err)
	}
	p.did("walk-through", seen)
	if err := p.release(ctx); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return p.tearDown(ctx, p.variables("1"))
}

// check checks the result of a first apply: the next plan, the requests, the grants and more.
func (p *testProject) check(ctx context.Context, v variables, update bool) error {
	if err := p.module.expectEmptyPlan(ctx, v); err != nil {
		return err
	}
	p.did("second plan", "empty")
	seen, err := sameRequests(p.fake.Requests(), update)
	if err != nil {
		return err
	}
	p.did("requests", seen)
	grants := asListed(p.fake.Grants())
	if err := sameGrants(p.module, grants); err != nil {
		return err
	}
	p.did("grants", fmt.Sprintf("%d, as in %s", len(grants), grantsFile))
	seen, err = p.sameAsProvisioned(ctx)
	if err != nil {
		return err
	}
	p.did("cmd/dev provision", seen)
	return nil
}

// release deploys other images. It expects that the migrations run again, and that all data stays.
func (p *testProject) release(ctx context.Context) error {
	v := p.variables("1")
	seen, err := p.module.keepsData(ctx, v)
	if err != nil {
		return err
	}
	if err := p.failedRelease(ctx, v); err != nil {
		return err
	}
	if jobs, want := p.ran(), append([]string{migrationJobs[0]}, migrationJobs...); !slices.Equal(jobs, want) {
		return fmt.Errorf("it ran the jobs %v, want %v: catalog's again, to start it again", jobs, want)
	}
	p.did("other images", seen)
	if err := p.module.expectEmptyPlan(ctx, v); err != nil {
		return err
	}
	return p.failedCreation(ctx, v)
}

// tearDown destroys the project. It first expects that the deletion protection refuses this.
func (p *testProject) tearDown(ctx context.Context, v variables) error {
	err := p.module.destroy(ctx, v)
	if err == nil || !strings.Contains(err.Error(), "deletion_p") {
		return fmt.Errorf("destroy with deletion_protection: %w, want it refused", err)
	}
	if topics, subscriptions, err := p.pubsubNames(ctx); err != nil || len(topics) != 4 || len(subscriptions) != 4 {
		return fmt.Errorf("after a destroy that was refused: topics %v, subscriptions %v, %w", topics, subscriptions, err)
	}
	p.did("destroy, protected", "refused; topics and subscriptions are there")
	v["deletion_protection"] = false
	if err := p.module.apply(ctx, v); err != nil {
		return err
	}
	if err := p.module.destroy(ctx, v); err != nil {
		return err
	}
	topics, subscriptions, err := p.pubsubNames(ctx)
	if err != nil {
		return err
	}
	if left := slices.Concat(p.fake.Remaining(), asListed(p.fake.Grants()), topics, subscriptions); len(left) > 0 {
		return errors.New("destroy left behind: " + strings.Join(left, ", "))
	}
	p.did("destroy", "nothing is left, in Pub/Sub neither")
	return nil
}

func (p *testProject) pubsubNames(ctx context.Context) (topics, subscriptions []string, err error) {
	conn, err := p.dial()
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

func (p *testProject) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient(p.pubsub.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/cmd/bench/report"
	"example.com/lockstep/cmd/bench/rig/process"
)

const (
	project = "bench"
	// subject and warmUp name a topic and its only subscription.
	subject = "subject"
	warmUp  = "warm-up"
	// ackDeadline is long: no run has to do with a second delivery.
	ackDeadline = 10 * time.Minute
)

// A rig is a server that nobody has used yet, and a client of it. Nothing that an
// earlier run left behind is in its way, and no other server idles beside it: some
// do so at the cost of a core.
type rig struct {
	server *pubsubServer
	conn   *grpc.ClientConn
	client *pubsub.Client
}

// newRig starts a server with the topic that is measured, and its subscription.
func newRig(ctx context.Context, ordered bool, args ...string) (_ *rig, err error) {
	r := new(rig)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if r.server, err = startServer(ctx, args...); err != nil {
		return nil, err
	}
	// As the client library dials a local broker, but for the variable that tells
	// it where: this process has its clients one after the other.
	r.conn, err = grpc.NewClient(r.server.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.WaitForReady(true)))
	if err != nil {
		return nil, err
	}
	if r.client, err = pubsub.NewClient(ctx, project, option.WithGRPCConn(r.conn)); err != nil {
		return nil, err
	}
	err = r.create(ctx, subject, ordered)
	return r, err
}

func (r *rig) create(ctx context.Context, name string, ordered bool) error {
	if _, err := r.client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: topicName(name)}); err != nil {
		return err
	}
	_, err := r.client.SubscriptionAdminClient.CreateSubscription(ctx, subscriptionTo(name, ordered))
	return err
}

// subscriptionTo is the subscription of the topic of the same name.
func subscriptionTo(name string, ordered bool) *pubsubpb.Subscription {
	return &pubsubpb.Subscription{
		Name: subscriptionName(name), Topic: topicName(name),
		AckDeadlineSeconds: int32(ackDeadline.Seconds()), EnableMessageOrdering: ordered,
	}
}

func topicName(id string) string        { return "projects/" + project + "/topics/" + id }
func subscriptionName(id string) string { return "projects/" + project + "/subscriptions/" + id }

// close ends the server too.
func (r *rig) close() error {
	var errs []error
	if r.client != nil {
		errs = append(errs, r.client.Close())
	}
	if r.server != nil {
		errs = append(errs, r.server.Close())
	}
	return errors.Join(errs...)
}

// warm publishes and receives for a while on each side: the Java machine needs it
// to compile, connections to open their windows. Everybody gets it.
func (r *rig) warm(ctx context.Context, limit time.Duration) error {
	if err := r.create(ctx, warmUp, false); err != nil {
		return err
	}
	if _, err := r.publish(ctx, warmUp, 0, limit); err != nil {
		return err
	}
	if _, err := r.receive(ctx, warmUp, math.MaxInt, limit); err != nil {
		return err
	}
	return r.client.SubscriptionAdminClient.DeleteSubscription(ctx,
		&pubsubpb.DeleteSubscriptionRequest{Subscription: subscriptionName(warmUp)})
}

// The raw API's limits for one request.
const (
	storeBatch      = 1000
	storeConcurrent = 8
)

// store publishes n messages with as little work for the client as can be: n/keys
// for each key, in requests of at most batch messages of one key each. It returns
// how many the server has accepted: fewer than n when ctx has ended before.
func (r *rig) store(ctx context.Context, n, keys, batch int, data []byte) (int, error) {
	lanes := max(keys, 1)
	perLane := n / lanes
	var stored atomic.Int64
	workers, working := errgroup.WithContext(ctx)
	for w := range min(storeConcurrent, lanes) {
		workers.Go(func() error {
			for done := 0; done < perLane; done += batch {
				for lane := w; lane < lanes; lane += storeConcurrent {
					size := min(batch, perLane-done)
					if err := r.request(working, size, keyName(lane, keys), data); err != nil {
						return fmt.Errorf("store messages: %w", err)
					}
					stored.Add(int64(size))
				}
			}
			return nil
		})
	}
	err := workers.Wait()
	if ctx.Err() != nil {
		err = nil
	}
	return int(stored.Load()), err
}

func (r *rig) request(ctx context.Context, n int, key string, data []byte) error {
	messages := make([]*pubsubpb.PubsubMessage, n)
	for i := range messages {
		messages[i] = &pubsubpb.PubsubMessage{Data: data, OrderingKey: key}
	}
	_, err := r.client.TopicAdminClient.Publish(ctx, &pubsubpb.PublishRequest{Topic: topicName(subject), Messages: messages})
	return err
}

// keyName is the key of the i-th message, among so many keys.
func keyName(i, keys int) string {
	if keys == 0 {
		return ""
	}
	return "key-" + strconv.Itoa(i%keys)
}

// load is the CPU time that server and client have used since they were started.
type load struct {
	server, client time.Duration
	at             time.Time
}

func (r *rig) load() load {
	return load{server: process.CPU(r.server.PID), client: process.CPU(os.Getpid()), at: time.Now()}
}

// perMessage makes a reading of a rate, with what a message has cost each side
// since before. That hardly depends on what else the machine does, as the rate
// does.
func (r *rig) perMessage(rate float64, before load) measure.Reading {
	now := r.load()
	wall := now.at.Sub(before.at).Seconds()
	server, client := (now.server - before.server).Seconds(), (now.client - before.client).Seconds()
	if server == 0 || rate == 0 {
		return measure.Reading{Values: []float64{rate}}
	}
	micros := 1e6 / (rate * wall)
	return measure.Reading{Values: []float64{rate}, Note: fmt.Sprintf("CPU a message: server %s us, client %s us; cores busy: %.1f and %.1f",
		report.Display(server*micros), report.Display(client*micros), server/wall, client/wall)}
}

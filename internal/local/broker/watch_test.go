package broker

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/topics"
)

// A broker that restarts has lost its state, and is provisioned each time it
// comes back; also if it did not exist yet when the watch started.
func TestWatchProvisionsARestartedBroker(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Local, Official} {
		t.Run(name(kind), func(t *testing.T) {
			t.Parallel()
			addr := porttest.Addr(t)
			made, stop := watch(t, addr)
			for range 3 {
				s := start(t, Options{Kind: kind, Addr: addr})
				// A topic of events and one of dead letters, each with a subscription.
				if p := <-made; len(p.Created) < 4*len(topics.All) || len(p.Existing) != 0 {
					t.Errorf("provisioned %+v, want a topic, its dead letters and their subscriptions for each of %v", p, topics.Names())
				}
				if absent, err := Missing(t.Context(), addr, project); err != nil || len(absent) > 0 {
					t.Errorf("missing: %v, %v", absent, err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			stop()
		})
	}
}

func TestMissingNamesADeletedSubscription(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	made, stop := watch(t, s.Addr())
	<-made
	name := "projects/" + project + "/subscriptions/" + topics.Subscription(topics.Video, topics.Catalog)
	client := pubsubpb.NewSubscriberClient(dial(t, s.Addr()))
	if _, err := client.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: name}); err != nil {
		t.Fatal(err)
	}
	absent, err := Missing(t.Context(), s.Addr(), project)
	if err != nil || len(absent) != 1 || absent[0] != name {
		t.Errorf("missing: %v, %v, want %s", absent, err, name)
	}
	if p := <-made; !slices.Equal(p.Created, []string{name}) {
		t.Errorf("provisioned %v, want %s", p.Created, name)
	}
	stop()
}

// A publisher that waits for its topic can lose messages until the topic has
// its subscription, so no call may come between the two.
func TestSubscriptionIsCreatedRightAfterItsTopic(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var calls []string
	record := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		mu.Lock()
		switch r := request.(type) {
		case *pubsubpb.Topic:
			calls = append(calls, "topic "+r.GetName())
		case *pubsubpb.Subscription:
			calls = append(calls, "subscription of "+r.GetTopic())
		}
		mu.Unlock()
		return handle(ctx, request)
	}
	fake := pstest.NewServer()
	defer fake.Close()
	server := grpc.NewServer(grpc.UnaryInterceptor(record))
	pubsubpb.RegisterPublisherServer(server, &fake.GServer)
	pubsubpb.RegisterSubscriberServer(server, &fake.GServer)
	lis := porttest.Listen(t)
	go func() { _ = server.Serve(lis) }()
	defer server.Stop()

	if _, err := Provision(t.Context(), lis.Addr().String(), project); err != nil {
		t.Fatal(err)
	}
	created, subscribed, own := "", map[string]bool{}, false
	for _, call := range calls {
		if topic, found := strings.CutPrefix(call, "topic "); found {
			if created != "" && !subscribed[created] {
				t.Errorf("%s follows %s, which has no subscription yet", topic, created)
			}
			dead := strings.HasSuffix(topic, ".dlq")
			if dead && own {
				t.Errorf("%s, of dead letters, comes after a topic of events", topic)
			}
			created, own = topic, own || !dead
		} else if call != "subscription of "+created {
			t.Errorf("%s follows the topic %s", call, created)
		} else {
			subscribed[created] = true
		}
	}
	for _, name := range topics.Names() {
		for _, topic := range []string{name, topics.DeadLetters(topics.Subscription(name, topics.Catalog))} {
			if !subscribed[topics.InProject(project, topic)] {
				t.Errorf("no subscription of %s in %q", topic, calls)
			}
		}
	}
}

// watch watches until stop is called, which waits for the end.
func watch(t *testing.T, addr string) (made <-chan Provisioned, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	heard, done := make(chan Provisioned, 10), make(chan struct{})
	go func() {
		defer close(done)
		err := Watch(ctx, addr, project, func(p Provisioned, err error) {
			if err != nil {
				t.Log(err) // it went away in the middle of a check
				return
			}
			heard <- p
		})
		if err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return heard, stop
}

func TestWatchRefusesNoAddress(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := Watch(ctx, "", project, nil); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("Watch = %v, want a refusal", err)
	}
}

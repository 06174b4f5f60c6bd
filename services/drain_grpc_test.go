package services_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/porttest"
	goclient "example.com/lockstep/pkg/client"
	videov1 "example.com/lockstep/proto/video/v1"
)

// TestRollingDeployFailsNoCall is TestRollingDeployFailsNoRequest over gRPC. The client balances its
// calls over the instances, as it would with the addresses of a headless service. It has no policy
// of retries: gRPC itself sends a call again, once, if a GOAWAY says that the server has not begun it.
func TestRollingDeployFailsNoCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	fleet := []*spawned{w.spawnVideo(t, porttest.Addr(t)), w.spawnVideo(t, porttest.Addr(t))}
	for _, p := range fleet {
		p.ready(t)
	}
	videos := videov1.NewVideoServiceClient(balanced(t, fleet[0].addr, fleet[1].addr))
	ids := newClient(t, fleet[0].addr).create(t, writers)
	var answered atomic.Int64
	stop := loadCalls(t, &answered, func(n int) error {
		if n >= writers {
			_, err := videos.GetVideo(t.Context(), &videov1.GetVideoRequest{VideoId: ids[n%writers]})
			return err
		}
		_, err := videos.UpdateVideo(t.Context(), &videov1.UpdateVideoRequest{
			Video: &videov1.Video{VideoId: ids[n], Title: uuid.NewString()}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}},
		})
		if goclient.Reason(err) == "BUSY" {
			return nil // a busy machine, and no deployment, makes a write wait for too long
		}
		return err
	})
	for i, p := range fleet {
		goal := answered.Load() + warmUp
		eventually(t, "the load is under way", func() bool { return answered.Load() > goal })
		p.drains(t)
		fleet[i] = w.spawnVideo(t, p.addr)
		fleet[i].ready(t)
	}
	stop()
	t.Logf("%d calls were answered", answered.Load())
}

// balanced returns a connection whose calls go to all addresses in turn.
func balanced(t testing.TB, addrs ...string) *grpc.ClientConn {
	t.Helper()
	known := manual.NewBuilderWithScheme("fleet")
	var state resolver.State
	for _, addr := range addrs {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: addr}}})
	}
	known.InitialState(state)
	conn, err := grpc.NewClient("fleet:///", grpc.WithResolvers(known), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// loadCalls makes calls until stop is called, none of which may fail. Callers are many more than writers.
func loadCalls(t testing.TB, answered *atomic.Int64, do func(n int) error) (stop func()) {
	t.Helper()
	var stopped atomic.Bool
	var running sync.WaitGroup
	for n := range 8 * writers {
		running.Go(func() {
			for !stopped.Load() {
				if err := do(n); err != nil {
					t.Errorf("caller %d: %v", n, err)
					continue
				}
				answered.Add(1)
			}
		})
	}
	return func() {
		stopped.Store(true)
		running.Wait()
	}
}

package catalog

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing"
)

func TestReadEnvironment(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"DATABASE_URL": "postgres://catalog_service@db/lockstep", "GOOGLE_CLOUD_PROJECT": "p", "VIDEO_SERVICE_ADDR": "video:8080",
		"AUTH_ISSUER": "https://issuer.example", "AUTH_AUDIENCE": "lockstep",
	}
	for name, tc := range map[string]struct {
		edit  map[string]string
		blame string
	}{
		"complete":               {nil, ""},
		"without a database":     {map[string]string{"DATABASE_URL": ""}, "DATABASE_URL"},
		"without a project":      {map[string]string{"GOOGLE_CLOUD_PROJECT": ""}, "GOOGLE_CLOUD_PROJECT"},
		"without an owner":       {map[string]string{"VIDEO_SERVICE_ADDR": ""}, "VIDEO_SERVICE_ADDR"},
		"owner without a port":   {map[string]string{"VIDEO_SERVICE_ADDR": "video"}, "VIDEO_SERVICE_ADDR"},
		"endpoint without port":  {map[string]string{"PUBSUB_ENDPOINT": "pubsub"}, "PUBSUB_ENDPOINT"},
		"emulator without port":  {map[string]string{"PUBSUB_EMULATOR_HOST": "localhost"}, "PUBSUB_EMULATOR_HOST"},
		"database is no URL":     {map[string]string{"DATABASE_URL": "secret"}, "DATABASE_URL"},
		"without an issuer":      {map[string]string{"AUTH_ISSUER": "", "AUTH_AUDIENCE": ""}, "AUTH_ISSUER"},
		"owner's port is a name": {map[string]string{"VIDEO_SERVICE_ADDR": "video:http"}, "VIDEO_SERVICE_ADDR"},
	} {
		r := command.NewEnvironment(func(key string) string {
			if v, ok := tc.edit[key]; ok {
				return v
			}
			return good[key]
		})
		var cfg Config
		cfg.ReadEnvironment(r)
		err := r.Err()
		switch {
		case tc.blame == "" && (err != nil || cfg.VideoServiceAddr != "video:8080"):
			t.Errorf("%s: %+v, %v", name, cfg, err)
		case tc.blame != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.blame) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v; want %s blamed, and no value shown", name, err, tc.blame)
		}
	}
}

// The whole service: an event from the broker ends a reader's wait, a gap is
// repaired from the owner, and it stops without an error.
func TestServe(t *testing.T) {
	local, err := broker.Start(t.Context(), broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	t.Setenv("PUBSUB_EMULATOR_HOST", local.Addr())
	if _, err := broker.Provision(t.Context(), local.Addr(), "test"); err != nil {
		t.Fatal(err)
	}
	client, err := connect.NewPubSub(t.Context(), "test", connect.PubSubOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	owner := newPeer()
	listen := func() net.Listener {
		lis := porttest.Listen(t)
		return lis
	}
	ownersPort, port := listen(), listen()
	server := grpc.NewServer()
	owner.register(server)
	go server.Serve(ownersPort)
	t.Cleanup(server.Stop)

	database := pairtest.New(t).CatalogURL
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, Config{
			Config:           serve.Config{DatabaseURL: database, Project: "test", Auth: auth.Config{Local: true}},
			VideoServiceAddr: ownersPort.Addr().String(),
		}, port, quiet())
	}()
	publish := func(e eventing.Event) {
		t.Helper()
		_, err := client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
			Topic: "projects/test/topics/" + topics.Video, Messages: []*pubsubpb.PubsubMessage{e.Message()},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	id, addr := newVideoID(), port.Addr().String()
	wait := func(version int64, title string) {
		t.Helper()
		r := call(t, addr, "GET /v1/videos/"+id.String(), "Consistency-Token: "+token(id, version), "Prefer: wait=10")
		if r.status != 200 || r.body["title"] != title || r.body["source"] != "projection" {
			t.Errorf("version %d: %d %v", version, r.status, r.body)
		}
	}
	publish(createdEvent(id, 1, "first"))
	wait(1, "first")
	owner.has(ownersVideo(id, 3, "third"))
	publish(titled(id, 3, "third")) // the second got lost
	wait(3, "third")
	publish(titled(id, 4, "fourth"))
	wait(4, "fourth")
	resp, err := http.Get("http://" + addr + "/readyz")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("readyz: %v, %v", resp, err)
	}
	resp.Body.Close()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

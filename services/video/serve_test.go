package video

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/internal/topics"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

func TestReadEnvironment(t *testing.T) {
	t.Parallel()
	good := map[string]string{
		"DATABASE_URL": "postgres://video_service@db/x", "GOOGLE_CLOUD_PROJECT": "p",
		"AUTH_ISSUER": "https://issuer.example", "AUTH_AUDIENCE": "lockstep",
	}
	r := command.NewEnvironment(func(name string) string { return good[name] })
	want := Config{Config: serve.Config{DatabaseURL: good["DATABASE_URL"], Project: "p", Auth: auth.ReadConfig(r)}}
	var got, none Config
	got.ReadEnvironment(r)
	if diff := cmp.Diff(want, got); r.Err() != nil || diff != "" || want.Auth.Issuer != good["AUTH_ISSUER"] {
		t.Errorf("defaults: %v (-want +got):\n%s", r.Err(), diff)
	}
	bad := map[string]string{
		"DATABASE_URL": "mysql://root:secret@db", "PUBSUB_ENDPOINT": "nowhere",
	}
	r = command.NewEnvironment(func(name string) string { return bad[name] })
	none.ReadEnvironment(r)
	err := r.Err()
	for _, name := range []string{"DATABASE_URL", "PUBSUB_ENDPOINT", "GOOGLE_CLOUD_PROJECT", "AUTH_ISSUER"} {
		if err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("the error does not name %s, or shows a secret: %v", name, err)
		}
	}
	good["PUBSUB_EMULATOR_HOST"] = "localhost" // the client would take it for an address
	r = command.NewEnvironment(func(name string) string { return good[name] })
	none.ReadEnvironment(r)
	if r.Err() == nil || !strings.HasPrefix(r.Err().Error(), "PUBSUB_EMULATOR_HOST ") {
		t.Errorf("an emulator without a port: %v", r.Err())
	}
}

// serving is Serve on a broker of its own.
type serving struct {
	*api
	broker *pstest.Server
	stop   context.CancelFunc
	done   chan error
}

// newServing cannot run in parallel: the client finds its broker through the
// environment.
func newServing(t *testing.T) serving {
	t.Helper()
	broker := pstest.NewServer()
	t.Cleanup(func() { _ = broker.Close() })
	for _, topic := range topics.Names() {
		name := "projects/p/topics/" + topic
		if _, err := broker.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PUBSUB_EMULATOR_HOST", broker.Addr)
	db := pairtest.New(t)
	lis := porttest.Listen(t)
	ctx, stop := context.WithCancel(context.Background())
	s := serving{
		api:    &api{TB: t, admin: db.Pool(t, db.Admin), url: "http://" + lis.Addr().String()},
		broker: broker, stop: stop, done: make(chan error, 1),
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	go func() {
		s.done <- Serve(ctx, Config{Config: serve.Config{DatabaseURL: db.VideoURL, Project: "p", Auth: auth.Config{Local: true}}}, lis, log)
		close(s.done)
	}()
	t.Cleanup(func() {
		stop()
		<-s.done
	})
	return s
}

func TestServePublishesAndDrains(t *testing.T) {
	s := newServing(t)
	v := s.create()
	pgtest.Until(s, "publish", func() bool { return len(s.broker.Messages()) > 0 })
	m := s.broker.Messages()[0]
	var e eventsv1.Event
	if err := proto.Unmarshal(m.Data, &e); err != nil || e.GetCreated().GetVideoId() != v.ID.String() ||
		m.OrderingKey != v.ID.String() || m.Attributes["event_type"] != "VideoCreated" || m.Attributes["aggregate_type"] != "video" {
		t.Errorf("message %+v of %+v (%v)", m, &e, err)
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	var leased int
	if err := s.admin.QueryRow(t.Context(), `SELECT count(*) FROM video.outbox WHERE lock_token IS NOT NULL`).Scan(&leased); err != nil || leased != 0 {
		t.Errorf("%d events are still leased (%v)", leased, err)
	}
}

func TestServeIsUnreadyUntilMigrated(t *testing.T) {
	s := newServing(t)
	ready := func() int { return s.call("GET", "/readyz", nil).Status }
	if status := ready(); status != http.StatusOK {
		t.Fatalf("readyz is %d", status)
	}
	s.exec(`UPDATE video.goose_db_version SET is_applied = false WHERE version_id = (SELECT max(version_id) FROM video.goose_db_version)`)
	if status := ready(); status != http.StatusServiceUnavailable {
		t.Errorf("readyz of an old schema is %d", status)
	}
	s.exec(`UPDATE video.goose_db_version SET is_applied = true`)
	if status := ready(); status != http.StatusOK {
		t.Errorf("readyz after the migration is %d", status)
	}
}

func TestServeEndsWithThePartThatFails(t *testing.T) {
	newServing(t) // for its broker
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Config: serve.Config{DatabaseURL: "postgres://nobody@127.0.0.1:1/none", Project: "p", Auth: auth.Config{Local: true}}}
	err = Serve(t.Context(), cfg, lis, slog.New(slog.DiscardHandler))
	if !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v, want the listener's error", err)
	}
}

func TestServeDoesNotShowAPassword(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Config: serve.Config{DatabaseURL: "postgres://u:secret@%zz/x", Auth: auth.Config{Local: true}}}
	err = Serve(t.Context(), cfg, lis, slog.New(slog.DiscardHandler))
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "DATABASE_URL") {
		t.Errorf("got %v", err)
	}
}

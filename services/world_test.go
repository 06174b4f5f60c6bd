package services_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/local/variables"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/services/catalog"
	"example.com/lockstep/services/video"
)

// binaries is the directory of the commands that build builds.
var binaries string

// shared is a broker for all tests that run services in this process. The client library
// reads its address from the environment of the process only, so TestMain sets it there.
var shared *broker.Server

func TestMain(m *testing.M) {
	variables.Forget()
	flag.Parse()
	if testing.Short() {
		fmt.Fprintln(os.Stderr, "the stories of the system take minutes: not with -short")
		return
	}
	// These tests mostly wait: for deliveries, leases and drains.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	var err error
	if binaries, err = os.MkdirTemp("", "lockstep-services-"); err != nil {
		panic(err)
	}
	defer os.RemoveAll(binaries)
	if shared, err = broker.Start(context.Background(), broker.Options{}); err != nil {
		panic(err)
	}
	defer shared.Close()
	if err := os.Setenv(emulatorHost, shared.Addr()); err != nil {
		panic(err)
	}
	pairtest.Main(m)
}

const (
	emulatorHost = "PUBSUB_EMULATOR_HOST"
	// patience ends a test that would otherwise hang. It covers two deliveries that a
	// dead subscriber held, on a slow machine.
	patience = 3 * time.Minute
	// glance is the pause between two checks of a condition. A check is often a request:
	// with shorter pauses the checks take the processors from the services.
	glance = 50 * time.Millisecond
)

// eventually checks a condition until it holds.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	if !await(tb.Context(), holds) {
		tb.Fatalf("not so after %s: %s", patience, what)
	}
}

// await reports whether the condition came to hold in time.
func await(ctx context.Context, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// world belongs to one test: a database, a project on a broker, and an address for each
// of the two services.
type world struct {
	broker  *testBroker
	project string
	pg      *pairtest.DB
	db      *pgxpool.Pool // as the administrator, which sees both schemas

	videoAddr, catalogAddr string
	auth                   auth.Config // open, unless the test sets it before it starts a service
}

func newWorld(t testing.TB, b *testBroker) *world {
	t.Helper()
	w := &world{
		broker: b, project: "test-" + uuid.NewString()[:8], pg: pairtest.New(t),
		videoAddr: porttest.Addr(t), catalogAddr: porttest.Addr(t), auth: auth.Config{Local: true},
	}
	w.db = w.pg.Pool(t, w.pg.Admin)
	b.provision(t, w.project)
	return w
}

// startVideo runs the video service in this process until stop is called, or the
// test ends, and returns when it is ready.
func (w *world) startVideo(t testing.TB) (stop func()) {
	t.Helper()
	return w.serveVideo(t, w.videoAddr, w.project)
}

// startMutedVideo is startVideo, but the relay finds no topic in its project: the
// events stay in the outbox, and the test chooses the messages for the broker.
func (w *world) startMutedVideo(t testing.TB) (stop func()) {
	t.Helper()
	return w.serveVideo(t, w.videoAddr, "nowhere")
}

func (w *world) serveVideo(t testing.TB, addr, project string) (stop func()) {
	t.Helper()
	cfg := video.Config{Config: serve.Config{DatabaseURL: w.pg.VideoURL, Project: project, Reflection: true, Auth: w.auth}}
	return start(t, addr, func(ctx context.Context, lis net.Listener, log *slog.Logger) error {
		return video.Serve(ctx, cfg, lis, log)
	})
}

// startCatalog is startVideo for the catalog service.
func (w *world) startCatalog(t testing.TB) (stop func()) {
	t.Helper()
	cfg := catalog.Config{
		Config:           serve.Config{DatabaseURL: w.pg.CatalogURL, Project: w.project, Reflection: true, Auth: w.auth},
		VideoServiceAddr: w.videoAddr,
	}
	return start(t, w.catalogAddr, func(ctx context.Context, lis net.Listener, log *slog.Logger) error {
		return catalog.Serve(ctx, cfg, lis, log)
	})
}

func start(t testing.TB, addr string, serve func(context.Context, net.Listener, *slog.Logger) error) (stop func()) {
	t.Helper()
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, lis, log) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("service at %s: %v", addr, err)
		}
	})
	t.Cleanup(stop)
	eventually(t, "the service at "+addr+" is ready", func() bool { return ready(addr) })
	return stop
}

func ready(addr string) bool {
	probe := http.Client{Timeout: 5 * time.Second}
	defer probe.CloseIdleConnections()
	res, err := probe.Get("http://" + addr + "/readyz")
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return res.StatusCode == http.StatusOK
}

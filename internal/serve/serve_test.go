package serve_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/local/variables"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/serve"
)

func TestMain(m *testing.M) {
	variables.Forget()
	m.Run()
}

// echo is a service with one method, /test.Echo/Say.
type echo func(ctx context.Context, text string) (string, error)

func (e echo) register(s grpc.ServiceRegistrar) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Say", Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.StringValue)
			if err := dec(in); err != nil {
				return nil, err
			}
			info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/test.Echo/Say"}
			return interceptor(ctx, in, info, func(ctx context.Context, req any) (any, error) {
				out, err := srv.(echo)(ctx, req.(*wrapperspb.StringValue).GetValue())
				return wrapperspb.String(out), err
			})
		}}},
	}, e)
}

func say(ctx context.Context, conn *grpc.ClientConn, text string) (string, error) {
	out := new(wrapperspb.StringValue)
	err := conn.Invoke(ctx, "/test.Echo/Say", wrapperspb.String(text), out)
	return out.GetValue(), err
}

// service is a server with parts that a test can prepare before it runs.
type service struct {
	log    *slog.Logger
	health *serve.Health
	rest   *chi.Mux
	grpc   *serve.GRPC
	rules  auth.Rules
	guard  *serve.Guard
}

func newService(logs io.Writer, checks ...serve.Check) *service {
	log := slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	health := serve.NewHealth(log, checks...)
	rules := auth.Rules{}
	guard := serve.NewGuard(rules, auth.Open(), serve.Options{})
	return &service{
		log: log, health: health, rules: rules, guard: guard,
		rest: serve.NewRouter(log, health, guard), grpc: serve.NewGRPC(log, guard),
	}
}

// server lets everyone call each operation that has no rule.
func (s *service) server() *serve.Server {
	server := serve.New(s.log, s.rest, s.grpc, s.health)
	operations, err := server.Operations()
	if err != nil {
		panic(err)
	}
	for _, operation := range operations {
		if s.rules[operation] == auth.Closed {
			s.rules[operation] = auth.SignedIn
		}
	}
	return server
}

// start runs the service on a port of its own until the test ends.
func (s *service) start(t testing.TB) (addr string) {
	t.Helper()
	lis := porttest.Listen(t)
	server := s.server()
	server.Linger = time.Nanosecond // these tests are not about draining
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx, lis) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return lis.Addr().String()
}

func dial(t testing.TB, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(addr, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// client speaks HTTP/1.1, or HTTP/2 without TLS.
func client(t testing.TB, h2 bool) *http.Client {
	t.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(!h2)
	protocols.SetUnencryptedHTTP2(h2)
	transport := &http.Transport{Protocols: &protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t testing.TB, c *http.Client, url string) (*http.Response, string) {
	t.Helper()
	res, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	return res, readAll(t, res)
}

func readAll(t testing.TB, res *http.Response) string {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestOnePortSpeaksRESTAndGRPC(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	s.rest.Get("/hello", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })
	echo(func(_ context.Context, text string) (string, error) { return "heard " + text, nil }).register(s.grpc)
	addr := s.start(t)

	for proto, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		if _, body := get(t, client(t, h2), "http://"+addr+"/hello"); body != proto {
			t.Errorf("REST was served over %q, want %q", body, proto)
		}
	}
	if got, err := say(t.Context(), dial(t, addr), "you"); err != nil || got != "heard you" {
		t.Errorf("Say = %q, %v", got, err)
	}
}

// The case of a media type does not count.
func TestGRPCInAnyCase(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	echo(func(_ context.Context, text string) (string, error) { return text, nil }).register(s.grpc)
	empty := strings.NewReader("\x00\x00\x00\x00\x00") // the frame of an empty message
	res, err := client(t, true).Post("http://"+s.start(t)+"/test.Echo/Say", "Application/GRPC+Proto", empty)
	if err != nil {
		t.Fatal(err)
	}
	if body := readAll(t, res); res.StatusCode != 200 || res.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("%d %q, trailer %v", res.StatusCode, body, res.Trailer)
	}
}

func TestGRPCWebIsNotGRPC(t *testing.T) {
	t.Parallel()
	res, err := client(t, true).Post("http://"+newService(io.Discard).start(t)+"/test.Echo/Say", "application/grpc-web+proto", nil)
	if err != nil {
		t.Fatal(err)
	}
	if body := readAll(t, res); res.StatusCode != 404 || res.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("gRPC-Web was answered with %d %s", res.StatusCode, body)
	}
}

func TestRunFailsWhenItCannotServe(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = lis.Close()
	err = newService(io.Discard).server().Run(t.Context(), lis)
	if !errors.Is(err, net.ErrClosed) || !strings.Contains(err.Error(), lis.Addr().String()) {
		t.Errorf("Run = %v, want the listener's error naming its address", err)
	}
}

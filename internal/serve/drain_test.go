package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"
)

// drained is a service in a synctest bubble, on a network in memory, so that
// its drain passes in fake time.
type drained struct {
	lis   *bufconn.Listener
	drain context.CancelFunc
	ended chan error
}

func (s *service) startInBubble(t *testing.T) *drained {
	t.Helper()
	return s.startWithBuffers(t, 1<<20)
}

// startWithBuffers is startInBubble with buffers of a size. Many connections need small ones.
func (s *service) startWithBuffers(t *testing.T, size int) *drained {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	d := &drained{lis: bufconn.Listen(size), drain: cancel, ended: make(chan error, 1)}
	server := s.server()
	go func() { d.ended <- server.Run(ctx, d.lis) }()
	return d
}

// end has the server drain, and waits for it.
func (d *drained) end(t *testing.T) {
	t.Helper()
	d.drain()
	d.wait(t)
}

// wait waits for the end of the server, which must be without an error.
func (d *drained) wait(t *testing.T) {
	t.Helper()
	if err := <-d.ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// connect opens a connection, which ends with the test.
func (d *drained) connect(t *testing.T) net.Conn {
	t.Helper()
	conn, err := d.lis.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (d *drained) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return d.lis.DialContext(ctx)
}

// client opens a connection for each request. DisableKeepAlives would ask the server to
// close it, but these tests check that the server closes it by itself.
func (d *drained) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: d.dial, MaxIdleConnsPerHost: -1}}
}

func (d *drained) grpcClient(t testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return dial(t, "passthrough:///test", append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return d.lis.DialContext(ctx)
	}))...)
}

func TestWhileLingeringRequestsAreServedAndToldToClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		s.rest.Get("/hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") })
		d := s.startInBubble(t)
		if res, _ := get(t, d.client(), "http://test/hello"); res.Header.Get("Connection") != "" {
			t.Errorf("before the drain: Connection %q", res.Header.Get("Connection"))
		}
		d.drain()
		synctest.Wait()
		if res, body := get(t, d.client(), "http://test/readyz"); res.StatusCode != 503 || !strings.Contains(body, `"draining"`) {
			t.Errorf("readiness while lingering: %d %s", res.StatusCode, body)
		}
		time.Sleep(1900 * time.Millisecond) // fake time: still within the 2 s
		res, body := get(t, d.client(), "http://test/hello")
		if res.StatusCode != 200 || body != "hi" || !res.Close {
			t.Errorf("while lingering: %d %q, told to close: %t", res.StatusCode, body, res.Close)
		}
		d.wait(t)
		if _, err := d.client().Get("http://test/hello"); err == nil {
			t.Error("a connection was accepted after the drain")
		}
	})
}

// TestAnAcceptedConnectionIsServedInTheDrain: its request comes after the listener has closed.
func TestAnAcceptedConnectionIsServedInTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		s.rest.Get("/hello", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hi") })
		d := s.startInBubble(t)
		d.connect(t) // silent
		d.drain()
		time.Sleep(1900 * time.Millisecond) // fake time: still within the 2 s
		d.connect(t)                        // late, and silent
		conn := d.connect(t)
		time.Sleep(500 * time.Millisecond)
		if _, err := d.lis.Dial(); err == nil {
			t.Error("the listener is still open")
		}
		if _, err := io.WriteString(conn, "GET /hello HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK || string(body) != "hi" {
			t.Errorf("%d %q (%v)", answer.StatusCode, body, err)
		}
		drained := time.Now()
		d.wait(t)
		if took := time.Since(drained); took > time.Second {
			t.Errorf("the silent connection holds up the drain for %s", took)
		}
	})
}

// TestAnAcceptedHTTP2ConnectionIsServedInTheDrain: its first request is on its way when the listener closes.
func TestAnAcceptedHTTP2ConnectionIsServedInTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newService(io.Discard).startInBubble(t)
		d.drain()
		time.Sleep(1900 * time.Millisecond) // fake time: still within the 2 s
		framer, silent := handshake(t, d.connect(t)), handshake(t, d.connect(t))
		time.Sleep(500 * time.Millisecond)
		request(t, framer, 1, []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/healthz"}})
		if got := readTo(t, framer, never); !got.answered[1] || got.lastStream != 1 {
			t.Errorf("answered: %t; GOAWAY for streams after %d", got.answered[1], got.lastStream)
		}
		if got := readTo(t, silent, never); got.goAway.IsZero() {
			t.Error("the silent connection ended without a GOAWAY")
		}
		d.wait(t)
	})
}

func TestARequestInFlightSurvivesTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		s.rest.Get("/slow", func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(5 * time.Second) // past lingering, within the shutdown
			_, _ = io.WriteString(w, "done")
		})
		d := s.startInBubble(t)
		d.connect(t) // a connection without a request, which the drain closes
		go func() {
			synctest.Wait()
			d.drain()
		}()
		if res, body := get(t, d.client(), "http://test/slow"); res.StatusCode != 200 || body != "done" {
			t.Errorf("the request in flight: %d %q", res.StatusCode, body)
		}
		d.wait(t)
	})
}

func TestACallInFlightSurvivesTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		echo(func(_ context.Context, text string) (string, error) {
			time.Sleep(5 * time.Second) // past lingering, within the shutdown
			return text, nil
		}).register(s.grpc)
		d := s.startInBubble(t)
		go func() {
			synctest.Wait()
			d.drain()
		}()
		if got, err := say(t.Context(), d.grpcClient(t), "done"); err != nil || got != "done" {
			t.Errorf("the call in flight: %q, %v", got, err)
		}
		d.wait(t)
	})
}

func TestADrainNamesWhatItCutsOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		s.rest.Get("/v1/users/{user_id}/stuck", func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) })
		d := s.startInBubble(t)
		go func() {
			if res, err := d.client().Get("http://test/v1/users/s3cret/stuck"); err == nil {
				t.Errorf("the stuck request was answered with %d", res.StatusCode)
			}
		}()
		synctest.Wait()
		started := time.Now()
		d.drain()
		if err := <-d.ended; err == nil || !strings.HasSuffix(err.Error(), ": GET /v1/users/{user_id}/stuck") {
			t.Errorf("Run = %v, want an error naming the route", err)
		}
		if took := time.Since(started); took != 5500*time.Millisecond {
			t.Errorf("the drain took %s, want 2 s of lingering and 3.5 s of shutdown", took)
		}
		time.Sleep(time.Minute) // the handler ends before the bubble does
	})
}

func TestADrainEndsHealthWatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newService(io.Discard).startInBubble(t)
		conn := d.grpcClient(t)
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{
			grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING,
		} {
			res, err := watch.Recv()
			if err != nil || res.GetStatus() != want {
				t.Fatalf("watch: %v, %v, want %s", res, err, want)
			}
			d.drain()
		}
		drainedAt := time.Now()
		d.wait(t)
		if took := time.Since(drainedAt); took > 4*time.Second {
			t.Errorf("Run ended after %s: the watch held it up to the limit", took)
		}
	})
}

// TestHTTP2ClientsGetAGoAway: a connection that is older than the drain gets it at once. A later one gets it after the listener has
// closed, so that a client that has no other instance does not open a connection for each request.
// A request that is on its way then gets its answer, because a proxy may not send such a request again.
func TestHTTP2ClientsGetAGoAway(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string][]hpack.HeaderField{
		"REST": {{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/healthz"}},
		"gRPC": {{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/grpc.health.v1.Health/Check"},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/late=%t", name, late), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { checkGoAway(t, headers, late) })
			})
		}
	}
}

func checkGoAway(t *testing.T, headers []hpack.HeaderField, late bool) {
	d := newService(io.Discard).startInBubble(t)
	if late {
		d.drain()
		synctest.Wait()
	}
	framer := handshake(t, d.connect(t))
	synctest.Wait() // the connection is accepted
	d.drain()
	synctest.Wait()
	shutdown := time.Now().Add(2 * time.Second)
	if late {
		request(t, framer, 1, headers)
	}
	first := readTo(t, framer, func(got transcript) bool { return !got.goAway.IsZero() })
	request(t, framer, 3, headers)
	last := readTo(t, framer, never)
	if !last.answered[3] {
		t.Errorf("no answer to a request that was on its way when a GOAWAY came for streams after %d", first.lastStream)
	}
	if first.goAway.Before(shutdown) == late || first.answered[1] != late || last.goAway.Before(shutdown) || last.lastStream != 3 {
		t.Errorf("GOAWAY at %s and, for streams after %d, at %s, shutdown at %s; stream 1 answered before: %t",
			first.goAway, last.lastStream, last.goAway, shutdown, first.answered[1])
	}
	d.wait(t)
}

func handshake(t testing.TB, conn net.Conn, settings ...http2.Setting) *http2.Framer {
	t.Helper()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(settings...); err != nil {
		t.Fatal(err)
	}
	return framer
}

// request sends a stream with an empty gRPC message, which REST ignores.
func request(t testing.TB, framer *http2.Framer, stream uint32, headers []hpack.HeaderField) {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range append(headers[:2:2], append([]hpack.HeaderField{{Name: ":scheme", Value: "http"}, {Name: ":authority", Value: "test"}}, headers[2:]...)...) {
		if err := encoder.WriteField(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	if err := framer.WriteData(stream, true, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
}

// transcript is the content of a connection.
type transcript struct {
	answered   map[uint32]bool // by stream
	goAway     time.Time       // of the last GOAWAY, as lastStream
	lastStream uint32
	reset      time.Time
}

func never(transcript) bool { return false }

// readTo reads until the content is enough, or the connection ends.
func readTo(t testing.TB, framer *http2.Framer, enough func(transcript) bool) transcript {
	t.Helper()
	got := transcript{answered: map[uint32]bool{}}
	for !enough(got) {
		frame, err := framer.ReadFrame()
		if err != nil {
			return got
		}
		switch f := frame.(type) {
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				t.Errorf("GOAWAY with %s", f.ErrCode)
			}
			got.goAway, got.lastStream = time.Now(), f.LastStreamID
		case *http2.HeadersFrame:
			got.answered[f.StreamID] = true
		case *http2.RSTStreamFrame:
			got.reset = time.Now()
		}
	}
	return got
}

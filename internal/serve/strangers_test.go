package serve_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// unreading is a client that reads frames, but whose window stays at 0, so that no answer gets its body.
type unreading struct {
	framer *http2.Framer
	next   uint32
}

func (d *drained) unreading(t *testing.T) *unreading {
	t.Helper()
	return &unreading{handshake(t, d.connect(t), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}), 1}
}

// preflight asks like a page of that origin whether it may call.
func (u *unreading) preflight(t *testing.T, origin string) {
	t.Helper()
	u.write(t, true, [2]string{":method", "OPTIONS"}, [2]string{":path", "/v1/videos"},
		[2]string{"origin", origin}, [2]string{"access-control-request-method", "PUT"})
}

// send sends a request for a path.
func (u *unreading) send(t *testing.T, path string) {
	t.Helper()
	u.write(t, true, [2]string{":method", "GET"}, [2]string{":path", path})
}

// call sends an empty message to a method of gRPC.
func (u *unreading) call(t *testing.T, method string) {
	t.Helper()
	u.write(t, false, [2]string{":method", "POST"}, [2]string{":path", method}, [2]string{"content-type", "application/grpc"})
	if err := u.framer.WriteData(u.next-2, true, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
}

func (u *unreading) write(t *testing.T, end bool, headers ...[2]string) {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0)
	for _, f := range append([][2]string{{":scheme", "http"}, {":authority", "test"}}, headers...) {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			t.Fatal(err)
		}
	}
	err := u.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: u.next, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: end})
	if err != nil {
		t.Fatal(err)
	}
	u.next += 2
}

// read reads frames until n streams were answered or reset, and returns how many were.
func (u *unreading) read(t *testing.T, n int) (answered, reset int) {
	t.Helper()
	for answered+reset < n {
		frame, err := u.framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame.(type) {
		case *http2.HeadersFrame:
			answered++
		case *http2.RSTStreamFrame:
			reset++
		}
	}
	return answered, reset
}

// Strangers that do not read keep 500 answers for 5 s. Further ones get none, and users are served.
func TestStrangersThatDoNotReadAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs := &lockedBuffer{}
		s := newService(logs)
		echo(func(_ context.Context, text string) (string, error) { return text, nil }).register(s.grpc)
		d := s.startInBubble(t)
		one, many := d.unreading(t), []*unreading{d.unreading(t), d.unreading(t)}
		started := time.Now()
		for _, m := range many {
			go func() {
				for range 250 {
					m.send(t, "/nothing")
				}
			}()
			if answered, _ := m.read(t, 250); answered != 250 {
				t.Errorf("%d of 250 requests have an answer", answered)
			}
		}
		one.send(t, "/nothing")
		if answered, _ := one.read(t, 1); answered != 0 {
			t.Error("a further stranger has an answer")
		}
		one.send(t, "/healthz")
		if answered, _ := one.read(t, 1); answered != 1 {
			t.Error("a probe has no answer")
		}
		if heard, err := say(t.Context(), d.grpcClient(t), "good"); err != nil || heard != "good" {
			t.Errorf("a good request: %q, %v", heard, err)
		}
		if took := time.Since(started); took != 0 {
			t.Errorf("this took %s, want no wait", took)
		}
		for _, m := range many {
			if _, reset := m.read(t, 250); reset != 250 || time.Since(started) != 5*time.Second {
				t.Errorf("%d answers were given up after %s, want 250 after 5s", reset, time.Since(started))
			}
		}
		if _, reset := one.read(t, 1); reset != 1 { // of the probe
			t.Error("the probe's answer was not given up")
		}
		one.send(t, "/nothing")
		if answered, _ := one.read(t, 1); answered != 1 {
			t.Error("no answer after the others were given up")
		}
		if lines := strings.Count(logs.String(), "requests are broken off"); lines != 1 {
			t.Errorf("%d lines about requests that were broken off, want 1", lines)
		}
		const broken = "http.server.request.duration http.request.method=GET,http.response.status_code=429,network.protocol.version=2,url.scheme=http"
		if requestsBySeries(t)[broken] == 0 {
			t.Error("a request that was broken off counts as a fault of the service")
		}
		d.end(t)
	})
}

// A preflight takes one of the 500 places, because anybody may send one in the name of any origin.
func TestPreflightsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const app = "https://app.example"
		d := called(t, app).startInBubble(t)
		one := d.unreading(t)
		one.preflight(t, app)
		if answered, _ := one.read(t, 1); answered != 1 {
			t.Error("a preflight has no answer")
		}
		for range 2 {
			m := d.unreading(t)
			go func() {
				for range 250 {
					m.send(t, "/nothing")
				}
			}()
			if answered, _ := m.read(t, 250); answered != 250 {
				t.Errorf("%d of 250 requests have an answer", answered)
			}
		}
		one.preflight(t, app)
		if _, reset := one.read(t, 1); reset != 1 {
			t.Error("a preflight above the bound has an answer")
		}
		time.Sleep(time.Minute) // in fake time: the others are given up
		d.end(t)
	})
}

// A call to health or reflection whose client does not read keeps its place when it is told to end. Of these,
// 16 are under way: 8, and 8 that have been told to end.
func TestOwnCallsThatAreNotReadAreBounded(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"} {
		synctest.Test(t, func(t *testing.T) {
			d := newService(&lockedBuffer{}).startInBubble(t)
			started, client := time.Now(), d.unreading(t)
			resets := make(chan struct{}, 200)
			go func() {
				defer close(resets)
				for len(resets) < cap(resets) {
					frame, err := client.framer.ReadFrame()
					if err != nil {
						return
					}
					if frame.Header().Type == http2.FrameRSTStream {
						resets <- struct{}{}
					}
				}
			}()
			for range cap(resets) {
				client.call(t, method)
				synctest.Wait()
			}
			if len(resets) != 200-16 {
				t.Errorf("%s: %d of 200 calls were ended at once, want 184", method, len(resets))
			}
			if _, err := grpc_health_v1.NewHealthClient(d.grpcClient(t)).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Errorf("a check next to them: %v", err)
			}
			if took := time.Since(started); took != 0 {
				t.Errorf("this took %s, want no wait", took)
			}
			time.Sleep(time.Minute) // in fake time: the others end
			d.end(t)
		})
	}
}

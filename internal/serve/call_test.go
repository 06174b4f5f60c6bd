package serve_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/internal/problem"
)

// requests is a body of small gRPC messages, one frame after the other.
type requests struct{ sent, offered int }

func (r *requests) Read(p []byte) (n int, err error) {
	const frame = "\x00\x00\x00\x00\x03\x3a\x01*" // of reflection: list the services
	for n+len(frame) <= len(p) && r.sent < r.offered {
		n += copy(p[n:], frame)
		r.sent += len(frame)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

func TestAStreamOfRequestsIsBounded(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	s.grpc.Reflect()
	body := &requests{offered: 64 << 20}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+s.start(t)+"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/grpc")
	if res, err := client(t, true).Do(r); err == nil {
		_, _ = io.Copy(io.Discard, res.Body) // it may be broken off
		_ = res.Body.Close()
	}
	// More may be sent than the bound, because both sides have windows and buffers.
	if body.sent > 4<<20 {
		t.Errorf("the server took %d MiB of one stream, want at most 4", body.sent>>20)
	}
}

func TestStreamsOfGRPCsOwnServicesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		s.grpc.Reflect()
		d := s.startInBubble(t)
		conn := d.grpcClient(t)
		watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		idle, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		go func() {
			time.Sleep(5 * time.Minute) // in fake time: only the drain ends it
			d.drain()
		}()
		if _, err := watch.Recv(); status.Code(err) != codes.Canceled || time.Since(started) != 55*time.Second {
			t.Errorf("a watch ended after %s with %v, want CANCELED after 55s", time.Since(started), err)
		}
		if _, err := idle.Recv(); err == nil || time.Since(started) > 55*time.Second {
			t.Errorf("reflection ended after %s with %v, want 55s at most", time.Since(started), err)
		}
		d.wait(t)
	})
}

// Every caller may open streams of gRPC's own services. They must not take the place of
// requests.
func TestFewStreamsOfGRPCsOwnServicesAreOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		s.grpc.Reflect()
		echo(func(_ context.Context, text string) (string, error) { return text, nil }).register(s.grpc)
		d := s.startInBubble(t)
		conn := d.grpcClient(t)
		health := grpc_health_v1.NewHealthClient(conn)
		ctx, closeAll := context.WithCancel(t.Context())
		ends := map[codes.Code]int{}
		opened := make(chan codes.Code, 100)
		for range 100 {
			stream, err := health.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Errorf("a new watch: %v", err)
			}
			go func() {
				_, err := stream.Recv()
				opened <- status.Code(err)
			}()
		}
		synctest.Wait()
		for range len(opened) {
			ends[<-opened]++
		}
		// Now and then grpc-go notices the end of the context first, and writes CANCELED.
		if ends[codes.ResourceExhausted] < 75 || ends[codes.ResourceExhausted]+ends[codes.Canceled] != 92 {
			t.Errorf("watches ended with %v, want all but the newest 8 with RESOURCE_EXHAUSTED", ends)
		}
		if stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context()); err != nil {
			t.Error(err)
		} else if err := stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
			MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
		}); err != nil {
			t.Error(err)
		} else if _, err := stream.Recv(); err != nil {
			t.Errorf("reflection next to the watches: %v", err)
		}
		for range 20 {
			if _, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
				t.Errorf("a health check: %v", err)
			}
			if heard, err := say(t.Context(), conn, "good"); err != nil || heard != "good" {
				t.Errorf("a good request: %q, %v", heard, err)
			}
		}
		closeAll()
		d.end(t)
	})
}

// A unary call to health whose message does not come holds a place until a newer call needs the place.
func TestChecksWithoutAMessageAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		echo(func(_ context.Context, text string) (string, error) { return text, nil }).register(s.grpc)
		d := s.startInBubble(t)
		conn := d.grpcClient(t)
		started := time.Now()
		ends := map[time.Duration]int{}
		var mu sync.Mutex
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{}, "/grpc.health.v1.Health/Check")
				if err != nil {
					t.Error(err)
					return
				}
				err = stream.RecvMsg(&grpc_health_v1.HealthCheckResponse{}) // and nothing is sent
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					t.Error("a call without a message was answered")
				}
				ends[time.Since(started)]++
			})
		}
		synctest.Wait()
		if heard, err := say(t.Context(), conn, "good"); err != nil || heard != "good" {
			t.Errorf("a good request: %q, %v", heard, err)
		}
		if _, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			t.Errorf("a check next to them: %v", err)
		}
		calls.Wait()
		if diff := cmp.Diff(map[time.Duration]int{0: 93, 5 * time.Second: 7}, ends); diff != "" {
			t.Errorf("when the calls ended (-want +got):\n%s", diff)
		}
		d.end(t)
	})
}

func TestCompressedCallsAreRefused(t *testing.T) {
	t.Parallel()
	conn := startEcho(t, io.Discard, func(_ context.Context, text string) (string, error) { return text, nil })
	err := conn.Invoke(t.Context(), "/test.Echo/Say", &emptypb.Empty{}, &emptypb.Empty{}, grpc.UseCompressor(gzip.Name))
	if status.Code(err) != codes.Unimplemented || problem.ReasonOf(err) != "COMPRESSION_NOT_SUPPORTED" {
		t.Errorf("a compressed call: %v, want UNIMPLEMENTED", err)
	}
	if diff := cmp.Diff([]string{"grpc-encoding"}, violated(err)); diff != "" {
		t.Errorf("field violations (-want +got):\n%s", diff)
	}
	if got, err := say(t.Context(), conn, "plain"); err != nil || got != "plain" {
		t.Errorf("the same without: %q, %v", got, err)
	}
}

// It sets the process's meter provider, so it must not run in parallel with other
// tests.
func TestCallsThatNoHandlerSeesAreLoggedAndCounted(t *testing.T) {
	reader := metric.NewManualReader()
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	t.Cleanup(func() { otel.SetMeterProvider(before) })
	var logs lockedBuffer
	conn := startEcho(t, &logs, func(context.Context, string) (string, error) { return "", nil })
	for _, method := range []string{"/test.Echo/S3cret", "/no.S3cret/Say", "/" + strings.Repeat("s3cret", 1000) + "/x", "/grpc.s3cret/y"} {
		err := conn.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) != codes.Unimplemented || problem.ReasonOf(err) != "METHOD_NOT_FOUND" || len(err.Error()) > 200 {
			t.Errorf("%.40s: %v, want a short UNIMPLEMENTED", method, err)
		}
	}
	_ = conn.Invoke(t.Context(), "/test.Echo/Say", &emptypb.Empty{}, &emptypb.Empty{}, grpc.UseCompressor(gzip.Name))
	_, _ = say(t.Context(), conn, strings.Repeat("x", 64<<10))
	if _, err := say(t.Context(), conn, "good"); err != nil {
		t.Error(err)
	}
	got := map[string]int{}
	for line := range strings.Lines(logs.String()) {
		got[decode(t, line)["msg"].(string)]++
	}
	want := map[string]int{
		"unknown Unimplemented": 4, "/test.Echo/Say Unimplemented": 1, "/test.Echo/Say ResourceExhausted": 1, "/test.Echo/Say OK": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" || strings.Contains(logs.String(), "s3cret") {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	counted := map[string]int64{"Unimplemented": 5, "ResourceExhausted": 1, "InvalidArgument": 0, "Unauthenticated": 0, "PermissionDenied": 0}
	if diff := cmp.Diff(counted, refusedBy(t, reader)); diff != "" {
		t.Errorf("refused by code (-want +got):\n%s", diff)
	}
}

func refusedBy(t *testing.T, reader *metric.ManualReader) map[string]int64 {
	t.Helper()
	var collected metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &collected); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "grpc.refused" {
				for _, point := range sum.DataPoints {
					code, _ := point.Attributes.Value("code")
					got[code.AsString()] += point.Value
				}
			}
		}
	}
	return got
}

func TestReflectionIsOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	conn := startEcho(t, io.Discard, func(context.Context, string) (string, error) { return "", nil })
	stream, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("reflection: %v, want UNIMPLEMENTED", err)
	}
}

func TestGRPCNeedsHTTP2AndPOST(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	addr := newService(&logs).start(t)
	for method, h2 := range map[string]bool{"POST": false, "GET": true} {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+"/test.Echo/Say", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/grpc")
		res, err := client(t, h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if body := readAll(t, res); res.StatusCode != 404 || res.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", method, res.StatusCode, body)
		}
		if !strings.Contains(logs.String(), method+" (no route) 404") {
			t.Errorf("%s is not logged:\n%s", method, logs.String())
		}
	}
}

// Frames are bounded, too, because a connection keeps a buffer for its largest frame.
func TestAConnectionHasABoundedNumberOfStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newService(io.Discard).startInBubble(t)
		conn := d.connect(t)
		framer := handshake(t, conn)
		for {
			frame, err := framer.ReadFrame()
			if err != nil {
				t.Fatal(errors.Join(err, errors.New("no settings came")))
			}
			if settings, ok := frame.(*http2.SettingsFrame); ok {
				if got, _ := settings.Value(http2.SettingMaxConcurrentStreams); got != 250 {
					t.Errorf("%d streams, want 250", got)
				}
				if got, _ := settings.Value(http2.SettingMaxFrameSize); got != 16<<10 {
					t.Errorf("frames of %d bytes, want 16 KiB", got)
				}
				break
			}
		}
		d.end(t)
	})
}

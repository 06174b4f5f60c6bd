package serve_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/telemetry"
)

// A series has the method, the route, the status and the protocol. The client's own text is in none:
// neither its Host header, nor a method or a path that it makes up. All servers of the process are
// counted together, so the test must not run in parallel with other tests.
func TestRequestsAreMeasuredByRoute(t *testing.T) {
	before := requestsBySeries(t)
	s := newService(io.Discard)
	s.rest.Post("/v1/things/{id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	s.rules["POST /v1/things/{id}"] = auth.Public
	s.rest.Get("/v1/out", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	s.rules["GET /v1/out"] = auth.Public
	for _, tc := range []struct {
		method, path, host string
		version            int
	}{
		{http.MethodPost, "/v1/things/1", "one.test", 1},
		{http.MethodPost, "/v1/things/2", "two.test:81", 1},
		{"INVENTED", "/nowhere/1", "three.test", 1},
		{"FURTHER", "/nowhere/2", "four.test", 1},
		{http.MethodGet, "/healthz", "probe.test", 1},
		{http.MethodGet, "/v1/out", "five.test", 2},
	} {
		r := httptest.NewRequest(tc.method, tc.path, nil)
		r.Host, r.ProtoMajor = tc.host, tc.version
		s.rest.ServeHTTP(httptest.NewRecorder(), r)
	}
	got := requestsBySeries(t)
	maps.DeleteFunc(got, func(series string, n uint64) bool {
		got[series] = n - before[series]
		return n == before[series]
	})
	const name = "http.server.request.duration "
	want := map[string]uint64{
		name + "http.request.method=POST,http.response.status_code=201,http.route=/v1/things/{id},network.protocol.version=1.1,url.scheme=http":     2,
		name + "error.type=503,http.request.method=GET,http.response.status_code=503,http.route=/v1/out,network.protocol.version=2,url.scheme=http": 1,
		name + "http.request.method=_OTHER,http.response.status_code=404,network.protocol.version=1.1,url.scheme=http":                              2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests by their series (-want +got):\n%s", diff)
	}
}

func requestsBySeries(t *testing.T) map[string]uint64 {
	t.Helper()
	all, err := telemetry.Recorded().Produce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, in := range all {
		for _, m := range in.Metrics {
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				got[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Count
			}
		}
	}
	return got
}

// Where no trace leaves the process, a request has an id of its own all the same, not that of a
// caller from outside: log lines and events have it. A probe has none.
func TestRequestsHaveIDsWithoutAnEndpoint(t *testing.T) {
	setUpTelemetry(t)
	var logs strings.Builder
	s := inProduction(t, &logs, -4)
	for _, path := range []string{"/nowhere", "/healthz"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Traceparent", traceparent)
		s.rest.ServeHTTP(httptest.NewRecorder(), r)
	}
	ids := regexp.MustCompile(`"logging[.]googleapis[.]com/trace":"[^"]*/([0-9a-f]{32})"`).FindAllStringSubmatch(logs.String(), -1)
	if len(ids) != 1 || ids[0][1] == callersTrace || strings.Contains(logs.String(), "trace_sampled") {
		t.Errorf("traces %q in the lines:\n%s", ids, logs.String())
	}
}

// setUpTelemetry is telemetry.Setup until the test ends, which must not run in parallel with others.
func setUpTelemetry(t *testing.T) {
	t.Helper()
	tracers, meters, propagator := otel.GetTracerProvider(), otel.GetMeterProvider(), otel.GetTextMapPropagator()
	stop, err := telemetry.Setup(t.Context(), "video", "v1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stop(t.Context()) // its context has ended: nothing waits for a collector
		otel.SetTracerProvider(tracers)
		otel.SetMeterProvider(meters)
		otel.SetTextMapPropagator(propagator)
	})
}

// The spans of hostile requests, which no collector takes, stay within a few MiB.
func TestACollectorThatHangsCostsLittle(t *testing.T) {
	collector, err := net.Listen("tcp", "127.0.0.1:0") // it accepts nobody
	if err != nil {
		t.Fatal(err)
	}
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://"+collector.Addr().String())
	setUpTelemetry(t)
	s := guarded(auth.Open()) // each request is admitted, and so has a span
	before := heap()
	for i := range 4000 {
		r := httptest.NewRequest(http.MethodGet, "/v1/videos/1", nil)
		r.Header.Set("User-Agent", fmt.Sprint(i)+strings.Repeat("M", 64<<10))
		r.Header.Set("Traceparent", traceparent)
		r.Header.Set("Tracestate", fmt.Sprintf("a=%d%s,b=2", i, strings.Repeat(",", 60<<10)))
		s.rest.ServeHTTP(httptest.NewRecorder(), r)
	}
	if grown := heap() - before; grown > 24<<20 {
		t.Errorf("%d KiB wait for the collector", grown>>10)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the first one may only move what sync.Pools hold
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

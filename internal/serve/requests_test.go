package serve_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/telemetry"
)

// sums has the sums of the sizes and the counts of the durations, by the labels of their series.
func sums(t *testing.T) map[string]int64 {
	t.Helper()
	all, err := telemetry.Histograms.Produce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, scope := range all {
		for _, m := range scope.Metrics {
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				n := int64(p.Sum)
				if m.Unit == "s" {
					n = int64(p.Count)
				}
				got[m.Name+" "+p.Attributes.Encoded(attribute.DefaultEncoder())] += n
			}
		}
	}
	return got
}

// A series has what the route and the protocol say. The client's own text is in none: neither
// its Host header, nor a method or a path that it makes up.
func TestRequestsAreMeasuredByRoute(t *testing.T) { //nolint:paralleltest // it measures the process
	s, before := newService(io.Discard), sums(t)
	s.rest.Post("/v1/things/{id}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "made")
	})
	s.rules["POST /v1/things/{id}"] = auth.Public
	for _, tc := range []struct{ method, path, host, body string }{
		{http.MethodPost, "/v1/things/1", "one.test", "12345"},
		{http.MethodPost, "/v1/things/2", "two.test:81", "678"},
		{"INVENTED", "/nowhere/1", "three.test", ""},
		{"FURTHER", "/nowhere/2", "four.test", ""},
		{http.MethodGet, "/healthz", "probe.test", ""},
	} {
		r := httptest.NewRequest(tc.method, tc.path, strings.NewReader(tc.body))
		r.Host = tc.host
		s.rest.ServeHTTP(httptest.NewRecorder(), r)
	}
	const (
		made = "http.request.method=POST,http.response.status_code=201,http.route=/v1/things/{id},network.protocol.name=http,network.protocol.version=1.1,url.scheme=http"
		none = "http.request.method=_OTHER,http.response.status_code=405,network.protocol.name=http,network.protocol.version=1.1,url.scheme=http"
	)
	got := sums(t)
	for series, n := range before {
		if got[series] -= n; got[series] == 0 {
			delete(got, series)
		}
	}
	if n := got["http.server.response.body.size "+none]; n == 0 {
		t.Error("the answers without a route have no size")
	}
	delete(got, "http.server.response.body.size "+none)
	delete(got, "http.server.request.body.size "+none) // 0
	want := map[string]int64{
		"http.server.request.duration " + made: 2, "http.server.request.body.size " + made: 8, "http.server.response.body.size " + made: 8,
		"http.server.request.duration " + none: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// Where no trace leaves the process, a request has an id of its own all the same, not that of a
// caller from outside: log lines and events have it. A probe has none.
func TestRequestsHaveIDsWithoutAnEndpoint(t *testing.T) {
	tracers, meters, propagator := otel.GetTracerProvider(), otel.GetMeterProvider(), otel.GetTextMapPropagator()
	stop, err := telemetry.Setup(t.Context(), "video", "v1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stop(t.Context())
		otel.SetTracerProvider(tracers)
		otel.SetMeterProvider(meters)
		otel.SetTextMapPropagator(propagator)
	})
	if telemetry.RecordsTraces() {
		t.Error("traces are recorded without an endpoint")
	}
	var logs strings.Builder
	s := inProduction(t, &logs, -4)
	for _, path := range []string{"/nowhere", "/healthz"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Traceparent", traceparent)
		s.rest.ServeHTTP(httptest.NewRecorder(), r)
	}
	ids := regexp.MustCompile(`"logging.googleapis.com/trace":"[^"]*/([0-9a-f]{32})"`).FindAllStringSubmatch(logs.String(), -1)
	if len(ids) != 1 || ids[0][1] == callersTrace || !strings.Contains(logs.String(), `"logging.googleapis.com/trace_sampled":false`) {
		t.Errorf("traces %q in the lines:\n%s", ids, logs.String())
	}
}

package telemetry_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/internal/local/variables"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/telemetry"
)

const (
	testDurations = "lockstep.test.duration"
	withDurations = ", with a histogram of ours"
)

func TestMain(m *testing.M) {
	variables.Forget()
	m.Run()
}

// setup starts telemetry with a collector. shutdown returns the methods that were
// called on the collector, each once, and whether the request had testDurations.
func setup(t *testing.T, env map[string]string) (shutdown func() (pushed []string)) {
	t.Helper()
	methods := make(chan string, 10)
	collector := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(ss)
		var request emptypb.Empty // the fields of the request are unknown to it, and stay in it as bytes
		if err := ss.RecvMsg(&request); err != nil {
			return err
		}
		if bytes.Contains(request.ProtoReflect().GetUnknown(), []byte(testDurations)) {
			method += withDurations
		}
		methods <- method
		return ss.SendMsg(&emptypb.Empty{})
	}))
	lis := porttest.Listen(t)
	go func() { _ = collector.Serve(lis) }()
	t.Cleanup(collector.Stop)
	for name, value := range env {
		t.Setenv(name, strings.ReplaceAll(value, "COLLECTOR", lis.Addr().String()))
	}
	stop, err := telemetry.Setup(t.Context(), "video", "v9.8.7")
	if err != nil {
		t.Fatal(err)
	}
	return func() (pushed []string) {
		if err := stop(t.Context()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		close(methods)
		for method := range methods {
			pushed = append(pushed, method)
		}
		slices.Sort(pushed)
		return slices.Compact(pushed)
	}
}

var durations = telemetry.NewDurations("test", testDurations, "about", 1)

// traceOnce makes one span and two measurements, and returns the traceparent that a call
// within the span would send.
func traceOnce(t *testing.T) string {
	t.Helper()
	ctx, span := otel.Tracer("test").Start(t.Context(), "work")
	defer span.End()
	counter, err := otel.Meter("test").Int64Counter("lockstep_test_work")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(ctx, 1)
	durations.Of(attribute.NewSet()).Record(time.Second)
	header := http.Header{}
	otel.GetTextMapPropagator().Inject(ctx, propagation.HeaderCarrier(header))
	return header.Get("Traceparent")
}

func TestWithoutAnEndpointNothingIsPushed(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"unset":    {},
		"disabled": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://COLLECTOR", "OTEL_SDK_DISABLED": "True"},
		"another exporter": {
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://COLLECTOR", "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "prometheus",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", // of no exporter
		},
	} {
		t.Run(name, func(t *testing.T) {
			shutdown := setup(t, env)
			if got := traceOnce(t); !strings.HasPrefix(got, "00-") || !strings.HasSuffix(got, "-00") {
				t.Errorf("traceparent %q, want a valid one that is not sampled", got)
			}
			for _, name := range []string{"lockstep_test_work_total", "lockstep_test_duration_seconds"} {
				if !scraped(t, name) {
					t.Errorf("%s cannot be scraped", name)
				}
			}
			if pushed := shutdown(); len(pushed) > 0 {
				t.Errorf("pushed to %s", pushed)
			}
		})
	}
}

func TestSignalsWithAnEndpointArePushed(t *testing.T) {
	const (
		traces  = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
		metrics = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" + withDurations
	)
	for variable, want := range map[string][]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":         {metrics, traces},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":  {traces},
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": {metrics},
	} {
		t.Run(variable, func(t *testing.T) {
			shutdown := setup(t, map[string]string{variable: "http://COLLECTOR"})
			sampled := strings.HasSuffix(traceOnce(t), "-01")
			if traced := slices.Contains(want, traces); sampled != traced {
				t.Errorf("sampled: %t, want %t", sampled, traced)
			}
			if diff := cmp.Diff(want, shutdown()); diff != "" {
				t.Errorf("pushed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheProtocolOfASignalTakesPrecedence(t *testing.T) {
	shutdown := setup(t, map[string]string{
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://COLLECTOR", "OTEL_TRACES_EXPORTER": "console,otlp",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
	})
	traceOnce(t)
	if pushed := shutdown(); len(pushed) != 1 {
		t.Errorf("pushed to %s, want traces", pushed)
	}
}

func TestTheResourceSaysWhichReleaseRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want map[string]string
	}{
		"laptop":    {nil, map[string]string{"service_name": "video", "service_version": "v9.8.7"}},
		"Cloud Run": {map[string]string{"K_REVISION": "video-00007-abc"}, map[string]string{"service_name": "video", "service_version": "v9.8.7", "faas_version": "video-00007-abc"}},
		"renamed":   {map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "service.version=mine"}, map[string]string{"service_name": "video", "service_version": "mine"}},
	} {
		t.Run(name, func(t *testing.T) {
			shutdown := setup(t, tc.env)
			defer shutdown()
			got := resourceLabels(t)
			delete(got, "service_instance_id")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("labels of target_info (-want +got):\n%s", diff)
			}
		})
	}
}

// A collector of traces that hangs does not cost the last metrics.
func TestTheLastMetricsDoNotWaitForTraces(t *testing.T) {
	metrics := make(chan struct{}, 10)
	collector := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(ss); strings.Contains(method, ".trace.") {
			<-ss.Context().Done()
			return ss.Context().Err()
		}
		metrics <- struct{}{}
		return ss.SendMsg(&emptypb.Empty{})
	}))
	lis := porttest.Listen(t)
	go func() { _ = collector.Serve(lis) }()
	t.Cleanup(collector.Stop)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+lis.Addr().String())
	stop, err := telemetry.Setup(t.Context(), "video", "v9.8.7")
	if err != nil {
		t.Fatal(err)
	}
	traceOnce(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := stop(ctx); err == nil {
		t.Error("no error, although the traces are not sent")
	}
	if len(metrics) == 0 {
		t.Error("the last metrics are not sent")
	}
}

// Without an id, the series of two instances would be the same at a collector: each counter would jump between the
// values of both.
func TestEachProcessIsAnInstance(t *testing.T) {
	const mine = "OTEL_RESOURCE_ATTRIBUTES"
	id := func(env map[string]string) string {
		defer setup(t, env)()
		return resourceLabels(t)["service_instance_id"]
	}
	one, other := id(nil), id(nil)
	if _, err := uuid.Parse(one); err != nil || one == other {
		t.Errorf("the ids of two instances are %q and %q, want two UUIDs", one, other)
	}
	if got := id(map[string]string{mine: "service.instance.id=pod-7"}); got != "pod-7" {
		t.Errorf("id %q, want that of %s", got, mine)
	}
}

// resourceLabels returns the labels of target_info that are the service's own.
func resourceLabels(t *testing.T) map[string]string {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{}
	for _, f := range families {
		if f.GetName() != "target_info" {
			continue
		}
		for _, label := range f.GetMetric()[0].GetLabel() {
			if !strings.HasPrefix(label.GetName(), "telemetry_") {
				labels[label.GetName()] = label.GetValue()
			}
		}
	}
	return labels
}

func TestBaggageIsNotPassedOn(t *testing.T) {
	shutdown := setup(t, nil)
	defer shutdown()
	in := propagation.HeaderCarrier{"Baggage": {"who=a-stranger"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
	ctx := otel.GetTextMapPropagator().Extract(t.Context(), in)
	out := propagation.HeaderCarrier{}
	otel.GetTextMapPropagator().Inject(ctx, out)
	if out.Get("Baggage") != "" || out.Get("Traceparent") == "" {
		t.Errorf("passed on: %v, want the trace alone", out)
	}
}

// A connection leads to one address of the other service after another, and each series stays for the life of the process.
func TestCallsHaveOneSeriesForAllAddresses(t *testing.T) {
	shutdown := setup(t, nil)
	defer shutdown()
	calls, err := otel.Meter("test").Float64Histogram("rpc.client.call.duration", metric.WithUnit("s"))
	if err != nil {
		t.Fatal(err)
	}
	for port := range 3 {
		calls.Record(t.Context(), 1, metric.WithAttributes(
			semconv.RPCMethod("m"), semconv.ServerAddress(fmt.Sprint("10.0.0.", port)), semconv.ServerPort(port)))
	}
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		series := f.GetMetric()
		if f.GetName() == "rpc_client_call_duration_seconds" && (len(series) != 1 || series[0].GetHistogram().GetSampleCount() != 3) {
			t.Errorf("series %v, want one of 3 calls", series)
		}
	}
	if !scraped(t, "rpc_client_call_duration_seconds") {
		t.Error("the calls cannot be scraped")
	}
}

func scraped(t *testing.T, name string) bool {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return true
		}
	}
	return false
}

// Package telemetry sets up the logs, traces and metrics of a service: JSON log lines
// for Cloud Logging on the standard output ([Logger]), traces and metrics through
// OpenTelemetry ([Setup]).
//
// Metrics can always be scraped from Prometheus's default registry. Traces and metrics are
// pushed over OTLP only if the standard variables name an endpoint (OTEL_EXPORTER_OTLP_ENDPOINT
// or its per-signal forms), OTEL_SDK_DISABLED is not true, and OTEL_TRACES_EXPORTER or
// OTEL_METRICS_EXPORTER names no other exporter instead, such as none. The only protocol is grpc:
// [Setup] refuses any other OTEL_EXPORTER_OTLP_PROTOCOL. The further variables of the SDK for Go have
// their standard meaning, including the sampler (OTEL_TRACES_SAMPLER) and the queue of spans
// (OTEL_BSP_*). The variables that [Durations] names are exceptions, and OTEL_PROPAGATORS has no
// meaning. Without an endpoint no span leaves the process. The W3C trace context is still passed on,
// so that log lines of both services can be joined.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Setup installs the process's tracer and meter providers and its propagator. Call it once, before
// any instrumented code runs. The returned function shutdown sends the buffered telemetry until its
// context ends. shutdown is never nil.
func Setup(ctx context.Context, service, version string) (shutdown func(context.Context) error, err error) {
	nothing := func(context.Context) error { return nil }
	res, err := describe(ctx, service, version)
	if err != nil {
		return nothing, err
	}
	tracers, flush, err := tracerProvider(ctx, res)
	if err != nil {
		return nothing, err
	}
	meters, err := meterProvider(ctx, res)
	if err != nil {
		return flush, err
	}
	// Baggage is not propagated. Nothing here reads it, and each of our calls would pass the
	// baggage of a stranger on to the owner.
	otel.SetTextMapPropagator(stateless{})
	otel.SetTracerProvider(tracers)
	otel.SetMeterProvider(meters)
	return func(ctx context.Context) error {
		flushed := make(chan error, 1)
		go func() { flushed <- flush(ctx) }() // a collector of traces that hangs takes all the time of ctx
		return errors.Join(meters.Shutdown(ctx), <-flushed)
	}, nil
}

// stateless propagates the W3C trace context without the caller's tracestate. Nothing here reads
// the tracestate. To parse 30 KiB of it may take a millisecond, before the caller is known. A span
// that links to the caller would keep all of it in memory for as long as the span exists, because
// any part of the tracestate is a slice of the header's string.
type stateless struct{ propagation.TraceContext }

// Extract implements propagation.TextMapPropagator.
func (s stateless) Extract(ctx context.Context, from propagation.TextMapCarrier) context.Context {
	return s.TraceContext.Extract(ctx, withoutState{from})
}

type withoutState struct{ propagation.TextMapCarrier }

// Get implements propagation.TextMapCarrier.
func (c withoutState) Get(header string) string {
	if header == "tracestate" {
		return ""
	}
	return c.TextMapCarrier.Get(header)
}

// describe names the service, its release, this process, and on Cloud Run the revision that serves.
// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
func describe(ctx context.Context, service, version string) (*resource.Resource, error) {
	attributes := []attribute.KeyValue{
		semconv.ServiceName(service), semconv.ServiceVersion(version), semconv.ServiceInstanceID(uuid.NewString()),
	}
	if revision := os.Getenv("K_REVISION"); revision != "" {
		attributes = append(attributes, semconv.FaaSVersion(revision))
	}
	res, err := resource.New(ctx, resource.WithAttributes(attributes...), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe service to telemetry: OTEL_RESOURCE_ATTRIBUTES: %w", err) // nothing else can fail
	}
	return res, nil
}

func tracerProvider(ctx context.Context, res *resource.Resource) (_ oteltrace.TracerProvider, flush func(context.Context) error, _ error) {
	if pushed, err := pushes("TRACES"); err != nil {
		return nil, nil, err
	} else if !pushed {
		return idsOnly{}, func(context.Context) error { return nil }, nil
	}
	// The size of a request to the collector is not checked. The check takes a fifth of the time to
	// send the request, and the 512 spans of a request are far below the limit.
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithMaxRequestSize(0))
	if err != nil {
		return nil, nil, fmt.Errorf("create trace exporter: %w", err)
	}
	tracers := trace.NewTracerProvider(trace.WithResource(res), trace.WithBatcher(exporter), trace.WithRawSpanLimits(limits()))
	return tracers, tracers.Shutdown, nil
}

func meterProvider(ctx context.Context, res *resource.Resource) (*metric.MeterProvider, error) {
	pushed, err := pushes("METRICS")
	if err != nil {
		return nil, err
	}
	scraped, err := prometheus.New(prometheus.WithProducer(Recorded()))
	if err != nil {
		return nil, fmt.Errorf("create prometheus exporter: %w", err)
	}
	// Exemplars link single measurements to their traces. They are off, because they would be half
	// of a measurement's cost, and neither the boards nor the alerts read them.
	options := []metric.Option{
		metric.WithResource(res), metric.WithReader(scraped), metric.WithExemplarFilter(exemplar.AlwaysOffFilter),
		metric.WithView(withoutAddress),
	}
	if pushed {
		exporter, err := otlpmetricgrpc.New(ctx)
		if err != nil {
			return nil, fmt.Errorf("create metric exporter: %w", err)
		}
		options = append(options, metric.WithReader(metric.NewPeriodicReader(exporter, metric.WithProducer(Recorded()))))
	}
	return metric.NewMeterProvider(options...), nil
}

// withoutAddress removes the address from the metric of calls to another service. It is the address of the connection and
// not the host of the service, so each address behind that host would begin series that never end.
var withoutAddress = metric.NewView(metric.Instrument{Name: "rpc.client.call.duration"},
	metric.Stream{AttributeFilter: attribute.NewDenyKeysFilter(semconv.ServerAddressKey, semconv.ServerPortKey)})

// pushes reports whether the environment asks for OTLP export of a signal. It returns an error if the
// environment asks for another protocol than this package has, or has a value that the SDK could not use. Otherwise
// every export would fail, and the error of the connection would not name the variable.
func pushes(signal string) (bool, error) {
	ofSignal := "OTEL_EXPORTER_OTLP_" + signal
	exporters := os.Getenv("OTEL_" + signal + "_EXPORTER") // unset: otlp
	switch {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"),
		os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && os.Getenv(ofSignal+"_ENDPOINT") == "",
		exporters != "" && !strings.Contains(exporters, "otlp"):
		return false, nil
	}
	if err := checkEnvironment(signal); err != nil {
		return false, err
	}
	for _, name := range []string{ofSignal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		switch os.Getenv(name) {
		case "":
			continue
		case "grpc":
			return true, nil
		}
		return false, fmt.Errorf("%s must be grpc, and the endpoint a collector's port for gRPC, mostly 4317; "+
			"or set OTEL_%s_EXPORTER to none", name, signal)
	}
	return true, nil
}

// maxAttributeBytes bounds each text of a span, so that the 2,560 spans that the SDK keeps take a few
// MiB: 2,048 that wait for the collector, and 512 in the request under way. The SDK cuts a text to a
// slice, which keeps the whole text in memory. So code that puts a client's text into a span copies a part.
const maxAttributeBytes = 1 << 10

// limits returns the limits of spans, as the standard variables OTEL_* set them. If they set no limit of
// the texts in attributes, it is maxAttributeBytes.
func limits() trace.SpanLimits {
	l := trace.NewSpanLimits()
	if l.AttributeValueLengthLimit < 0 {
		l.AttributeValueLengthLimit = maxAttributeBytes
	}
	return l
}

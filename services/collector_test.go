package services_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/porttest"
)

// traceCollector receives the spans that services export over OTLP.
type traceCollector struct {
	collector.UnimplementedTraceServiceServer

	endpoint string

	mu    sync.Mutex
	spans []collected
}

// collected is a span, with the name of its service.
type collected struct {
	*otlp.Span

	service string
}

func startCollector(t testing.TB) *traceCollector {
	t.Helper()
	lis := porttest.Listen(t)
	c := &traceCollector{endpoint: "http://" + lis.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	return c
}

// Export takes the spans of one request.
func (c *traceCollector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		service := ""
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, collected{s, service})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// all are the spans so far.
func (c *traceCollector) all() []collected {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

// text is an attribute's value, or empty.
func (s collected) text(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

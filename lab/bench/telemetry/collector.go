package telemetry

import (
	"context"
	"net"
	"sync/atomic"

	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// collector takes spans and metrics over OTLP, and counts them.
type collector struct {
	endpoint       string
	server         *grpc.Server
	spans, metrics atomic.Int64
}

// startCollector starts a collector in this process. The caller stops its server.
func startCollector() (*collector, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{endpoint: "http://" + lis.Addr().String(), server: grpc.NewServer()}
	traces.RegisterTraceServiceServer(c.server, spanCounter{collector: c})
	metrics.RegisterMetricsServiceServer(c.server, metricCounter{collector: c})
	go func() { _ = c.server.Serve(lis) }() // it ends with Stop
	return c, nil
}

type spanCounter struct {
	traces.UnimplementedTraceServiceServer

	collector *collector
}

// Export counts the spans of one request.
func (s spanCounter) Export(_ context.Context, r *traces.ExportTraceServiceRequest) (*traces.ExportTraceServiceResponse, error) {
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			s.collector.spans.Add(int64(len(scope.GetSpans())))
		}
	}
	return &traces.ExportTraceServiceResponse{}, nil
}

type metricCounter struct {
	metrics.UnimplementedMetricsServiceServer

	collector *collector
}

// Export counts the metrics of one request.
func (m metricCounter) Export(_ context.Context, r *metrics.ExportMetricsServiceRequest) (*metrics.ExportMetricsServiceResponse, error) {
	for _, resource := range r.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			m.collector.metrics.Add(int64(len(scope.GetMetrics())))
		}
	}
	return &metrics.ExportMetricsServiceResponse{}, nil
}

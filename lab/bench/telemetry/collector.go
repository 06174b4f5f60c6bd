package telemetry

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

// collector receives spans and metrics over OTLP, and counts them. It does not decode them, because
// the collector of a deployment has its own cores.
type collector struct {
	endpoint       string
	server         *grpc.Server
	spans, metrics atomic.Int64
}

// startCollector starts a collector in this process. The caller must stop the collector's server.
func startCollector() (*collector, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &collector{endpoint: "http://" + lis.Addr().String()}
	c.server = grpc.NewServer(grpc.ForceServerCodec(undecoded{}), grpc.UnknownServiceHandler(c.export))
	go func() { _ = c.server.Serve(lis) }() // it ends with Stop
	return c, nil
}

// export counts the spans or the metrics of one request.
func (c *collector) export(_ any, stream grpc.ServerStream) error {
	var request []byte
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	counter := &c.metrics
	if method, _ := grpc.MethodFromServerStream(stream); strings.Contains(method, "TraceService") {
		counter = &c.spans
	}
	// A resource has scopes, and a scope has spans or metrics. The field numbers are the same for
	// spans and for metrics.
	counter.Add(count(request, 1, 2, 2))
	return stream.SendMsg([]byte(nil))
}

// count returns the number of submessages at a path of field numbers.
func count(message []byte, path ...protowire.Number) (n int64) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return n
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return n
		}
		if number == path[0] && kind == protowire.BytesType {
			if len(path) == 1 {
				n++
			} else {
				inner, _ := protowire.ConsumeBytes(message[tag:])
				n += count(inner, path[1:]...)
			}
		}
		message = message[tag+size:]
	}
	return n
}

// undecoded is a codec that leaves messages as bytes.
type undecoded struct{}

// Name returns the name of the codec that undecoded replaces.
func (undecoded) Name() string { return "proto" }

// Marshal returns v, which must be bytes.
func (undecoded) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not bytes", v)
	}
	return b, nil
}

// Unmarshal copies data to v, which must be a pointer to bytes.
func (undecoded) Unmarshal(data []byte, v any) error {
	into, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is not a pointer to bytes", v)
	}
	*into = bytes.Clone(data)
	return nil
}

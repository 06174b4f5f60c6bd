package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/metric"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/instrument"
)

// GRPC is a gRPC server with the health service. It is a grpc.ServiceRegistrar: pass it to the
// generated Register functions before the Server runs. The transport refuses a message over 64 KiB
// with RESOURCE_EXHAUSTED. A request that is not one whole message gets gRPC's own INTERNAL.
type GRPC struct {
	log     *slog.Logger
	guard   *Guard
	server  *grpc.Server
	health  *health.Server
	refused metric.Int64Counter
	// faults limits the log lines about clients' faults.
	faults *rate.Limiter
}

// NewGRPC returns a server. Its handlers may return any error, because each error reaches the
// client through problem.From.
func NewGRPC(log *slog.Logger, guard *Guard) *GRPC {
	g := &GRPC{log: log, guard: guard, health: health.NewServer(), faults: newFaults(),
		refused: instrument.For(scope).Counter("grpc.refused", "{request}",
			"gRPC requests that were answered before a handler saw them: unknown method, compressed, too large, malformed, not for this caller.")}
	for _, code := range refusals {
		instrument.Begin(g.refused, ofCode(code))
	}
	g.server = grpc.NewServer(
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(proto.Name)}),
		grpc.MaxRecvMsgSize(maxMessageBytes),
		grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithFilter(func(rpc *stats.RPCTagInfo) bool { return !isInfrastructure(rpc.FullMethodName) }),
			otelgrpc.WithPublicEndpointFn(guard.isOutside))),
		grpc.UnaryInterceptor(g.unary),
		grpc.StreamInterceptor(g.stream),
	)
	grpc_health_v1.RegisterHealthServer(g.server, g.health)
	return g
}

// Reflect lets every caller list services and messages, as grpcurl does.
func (g *GRPC) Reflect() { reflection.Register(g.server) }

// RegisterService adds a service and reports it as serving.
func (g *GRPC) RegisterService(desc *grpc.ServiceDesc, impl any) {
	tolerant := *desc
	tolerant.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		tolerant.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: blameClient(m.Handler)}
	}
	g.server.RegisterService(&tolerant, impl)
	g.health.SetServingStatus(desc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
}

func (g *GRPC) drain() { g.health.Shutdown() }

// request receives a message together with the error of its decoding. The codec must not return
// this error itself, because grpc-go would then answer INTERNAL before any interceptor could change
// the answer.
type request struct {
	into any
	err  error
}

// blameClient answers INVALID_ARGUMENT to a request that cannot be decoded.
func blameClient(next grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		decode := func(into any) error {
			r := &request{into: into}
			if err := dec(r); err != nil {
				return err
			}
			return r.err
		}
		return next(srv, ctx, decode, interceptor)
	}
}

// codec is the protobuf codec, except that it counts elements before it decodes,
// and notes a failure in a *request instead of returning it.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*request)
	if !ok {
		return c.decode(data, v)
	}
	r.err = c.decode(data, r.into)
	return nil
}

func (c codec) decode(data mem.BufferSlice, into any) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if message, ok := into.(protobuf.Message); ok {
		if err := checkElements(whole.ReadOnlyData(), message.ProtoReflect().Descriptor()); err != nil {
			return err
		}
	}
	if err := c.CodecV2.Unmarshal(mem.BufferSlice{whole}, into); err != nil {
		p := problem.Invalid("request", "must be well-formed protobuf, with text in UTF-8")
		p.Cause = err
		return p
	}
	return nil
}

// errRequestTime is the cause of the end of a context that ends by requestTimeout.
var errRequestTime = fmt.Errorf("the call has taken %s", requestTimeout)

// unary runs one call with a deadline, renders its error and logs it.
func (g *GRPC) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errRequestTime) // or the client's deadline, if it is sooner
	defer cancel()
	err = g.call(ctx, info.FullMethod, func() error {
		resp, err = handler(ctx, req)
		return err
	})
	return resp, err
}

// stream does the same as unary for a stream, but sets no deadline. The context of gRPC's own
// streams already has a deadline. If a service of ours had a stream, the write deadline of every
// answer would cut the stream off.
func (g *GRPC) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return g.call(ss.Context(), info.FullMethod, func() error {
		err := handler(srv, ss)
		if errors.Is(context.Cause(ss.Context()), errReplaced) {
			return errReplaced // the handler says only that the stream was cancelled
		}
		return err
	})
}

func (g *GRPC) call(ctx context.Context, method string, do func() error) error {
	started := time.Now()
	reached(ctx)
	err := g.rendered(ctx, method, recovered(do))
	g.logCall(ctx, method, time.Since(started), err, isClients(status.Code(err)) || ranOut(ctx))
	return err
}

// ranOut reports whether ctx has ended by the deadline of its caller. A caller chooses its deadline, and may send any
// number of calls that cannot meet it.
func ranOut(ctx context.Context) bool { return errors.Is(context.Cause(ctx), context.DeadlineExceeded) }

// recovered returns a panic of call as an error that ends with the stack. Otherwise the panic would
// end the process, because gRPC runs handlers on goroutines of its own.
func recovered(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	return call()
}

func panicError(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }

// rendered turns any error into a status. The statuses of gRPC's own services
// are part of their protocols and stay as they are.
func (g *GRPC) rendered(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok && isInfrastructure(method) {
		return err
	}
	p := problem.From(err)
	if p.Code != problem.CodeTimeout || !ranOut(ctx) || g.faults.Allow() {
		p.Log(ctx, g.log)
	}
	if p.RetryAfter > 0 {
		_ = grpc.SetTrailer(ctx, metadata.Pairs(pushback, pushbackOf(ctx, p.RetryAfter))) // fails only outside of a call
	}
	return p.StatusIn(ctx).Err()
}

// logCall writes the log line of a call. method is an existing method or "unknown". Calls to gRPC's
// own services are logged at DEBUG. atNoCost is true if the call failed by the client's fault, so that a
// stranger can send any number of such calls. Of their lines a limited number is at INFO, and the rest at DEBUG.
func (g *GRPC) logCall(ctx context.Context, method string, took time.Duration, err error, atNoCost bool) {
	code := status.Code(err)
	level := slog.LevelInfo
	if isInfrastructure(method) || atNoCost && !g.faults.Allow() {
		level = slog.LevelDebug
	}
	g.log.LogAttrs(ctx, level, method+" "+code.String(),
		slog.String("grpc_method", method),
		slog.String("grpc_code", code.String()),
		slog.Duration("took", took))
}

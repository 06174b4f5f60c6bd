package serve

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/problem"
)

// unary bounds, runs, renders and logs one call.
func (g *GRPC) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	started := time.Now()
	reached(ctx)
	ctx, cancel := context.WithTimeout(ctx, requestTimeout) // or the client's, where that is sooner
	defer cancel()
	err = recovered(func() error {
		resp, err = handler(ctx, req)
		return err
	})
	err = rendered(ctx, g.log, info.FullMethod, err)
	g.logCall(ctx, info.FullMethod, time.Since(started), err)
	return resp, err
}

// stream does the same without a deadline of its own: the context of gRPC's own streams
// has one already, and a stream of our services would be cut off at the deadline of
// every answer.
func (g *GRPC) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	started := time.Now()
	reached(ss.Context())
	err := recovered(func() error { return handler(srv, ss) })
	err = rendered(ss.Context(), g.log, info.FullMethod, err)
	g.logCall(ss.Context(), info.FullMethod, time.Since(started), err)
	return err
}

// recovered returns a panic as an error that ends with the stack. gRPC runs
// handlers on goroutines of its own, where a panic would end the process.
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
func rendered(ctx context.Context, log *slog.Logger, method string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok && isInfrastructure(method) {
		return err
	}
	p := problem.From(err)
	p.Log(ctx, log)
	return p.GRPCStatus().Err()
}

// logCall writes the line of a call. method is an existing one, or "unknown".
func (g *GRPC) logCall(ctx context.Context, method string, took time.Duration, err error) {
	code := status.Code(err)
	level := slog.LevelInfo
	if isInfrastructure(method) || isClients(code) && !g.faults.Allow() {
		level = slog.LevelDebug
	}
	g.log.LogAttrs(ctx, level, method+" "+code.String(),
		slog.String("grpc_method", method),
		slog.String("grpc_code", code.String()),
		slog.Duration("took", took))
}

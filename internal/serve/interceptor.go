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
func unary(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
		started := time.Now()
		ctx, cancel := context.WithTimeout(ctx, requestTimeout) // or the client's, where that is sooner
		defer cancel()
		err = recovered(func() error {
			resp, err = handler(ctx, req)
			return err
		})
		err = rendered(ctx, log, info.FullMethod, err)
		logCall(ctx, log, info.FullMethod, time.Since(started), err)
		return resp, err
	}
}

// stream does the same without a deadline: a stream of gRPC's own services lives as
// long as its client wants, and the drain of the server ends it. One of ours would
// be cut off where every answer is.
func stream(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		started := time.Now()
		err := recovered(func() error { return handler(srv, ss) })
		err = rendered(ss.Context(), log, info.FullMethod, err)
		logCall(ss.Context(), log, info.FullMethod, time.Since(started), err)
		return err
	}
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

func logCall(ctx context.Context, log *slog.Logger, method string, took time.Duration, err error) {
	level := slog.LevelInfo
	if isInfrastructure(method) {
		level = slog.LevelDebug
	}
	log.LogAttrs(ctx, level, method+" "+status.Code(err).String(),
		slog.String("grpc_method", method),
		slog.String("grpc_code", status.Code(err).String()),
		slog.Duration("took", took))
}

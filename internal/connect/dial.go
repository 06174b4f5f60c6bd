package connect

import (
	"fmt"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"
)

// Dial connects to another service's port (host:port) at the first call, and again
// after the service was unavailable. On port 443 it uses TLS and this service's
// identity, by the rules of package identity. Each call brings its own deadline; none
// is retried. Close the connection after the last use.
func Dial(addr string) (*grpc.ClientConn, error) {
	as, err := DialOptions(addr)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(addr, append(as,
		grpc.WithStatsHandler(otelgrpc.NewClientHandler()),
		// The timeout is also the time after which a connection is given up if its host
		// has vanished without closing it.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
		// Readers are waiting: try again sooner than the default's two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}))...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return conn, nil
}

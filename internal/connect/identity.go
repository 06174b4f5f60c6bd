package connect

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Dial connects to the port of another service (host:port) at the first call, and again after the
// service was unavailable. On port 443 it uses TLS and this service's identity, by the rules in the
// package doc. Each call must bring its own deadline. No call is retried. Close the connection
// after the last use.
func Dial(addr string) (*grpc.ClientConn, error) {
	as, err := dialOptions(addr, nil)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(addr, append(as,
		grpc.WithStatsHandler(otelgrpc.NewClientHandler()),
		grpc.WithKeepaliveParams(keepAlive),
		// Readers are waiting, so the pause between two attempts stays below gRPC's default of two
		// minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}))...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return conn, nil
}

// securePort is the port of Cloud Run. No server that this repository starts listens on it.
const securePort = "443"

// dialOptions returns the options to call the service at addr (host:port), by the rules in the
// package doc. It sends no request. If the metadata server is unavailable, the calls fail with
// UNAVAILABLE, but dialOptions does not. The connection trusts the given roots, or the system's if
// roots is nil.
func dialOptions(addr string, roots *x509.CertPool) ([]grpc.DialOption, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address of a service: %w", err)
	}
	if port != securePort {
		return []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, nil
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots})),
		grpc.WithPerRPCCredentials(newTokens(audience(host))),
	}, nil
}

// audience returns the URL, without a port, by which Cloud Run knows the service.
func audience(host string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return (&url.URL{Scheme: "https", Host: strings.ToLower(host)}).String()
}

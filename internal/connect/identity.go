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
	"google.golang.org/grpc/keepalive"
)

// Dial connects to another service's port (host:port) at the first call, and again
// after the service was unavailable. On port 443 it uses TLS and this service's
// identity, by the rules in the package doc. Each call brings its own deadline; none
// is retried. Close the connection after the last use.
func Dial(addr string) (*grpc.ClientConn, error) {
	as, err := dialOptions(addr, nil)
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

// securePort is the port of Cloud Run; no server that this repository starts listens
// there.
const securePort = "443"

// dialOptions are the options to call the service at addr (host:port), by the rule in
// the package doc. It sends no request: an unavailable metadata server is an error of
// the calls, UNAVAILABLE, and no error here. It trusts the given roots, or the system's
// if roots is nil.
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

// audience is the URL of a service on Cloud Run as Cloud Run knows it: without a port.
func audience(host string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return (&url.URL{Scheme: "https", Host: strings.ToLower(host)}).String()
}

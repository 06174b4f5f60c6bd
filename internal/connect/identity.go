package connect

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// securePort is the port of Cloud Run; no server that this repository starts listens
// there.
const securePort = "443"

// DialOptions are the options to call the service at addr (host:port), by the rule in
// the package doc. It sends no request: an unavailable metadata server is an error of
// the calls, UNAVAILABLE, and no error here.
func DialOptions(addr string) ([]grpc.DialOption, error) { return dialOptions(addr, nil) }

// dialOptions trusts the given roots, or the system's if roots is nil.
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

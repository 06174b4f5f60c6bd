// Package identity has the identity of a service in its calls to another service over
// gRPC.
//
// The port of the other's address decides, and nothing else does:
//
//	host:443   TLS, and on each call an ID token of Google for the audience
//	           https://host: a service on Cloud Run, which checks its invokers
//	host:8080  or any other: plain text and no token: a laptop, containers on one
//	           network. No token ever goes that way
//
// So a process's behaviour can be read off its configuration. Detection of Google Cloud
// would be a guess, and it would be wrong in the minute when the metadata server is
// slow: the calls would go out without a token and be refused.
//
// The token names the service account that this process runs as. It comes from the
// metadata server that every machine of Google Cloud has (GCE_METADATA_HOST is another
// one), lives for an hour, and is kept until a few minutes before its end. It goes out
// as X-Serverless-Authorization, which Cloud Run reads first: the header Authorization
// stays free for the user for whom the call is made. Cloud Run verifies it before the
// request reaches a container, and takes its signature away; the called service never
// reads it (https://cloud.google.com/run/docs/authenticating/service-to-service).
package identity

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

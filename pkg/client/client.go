// Package client calls the pair from Go, over gRPC, as one user.
//
// A Client is one session of package session. The session keeps the consistency token of each
// answer, and sends it with each read. So a read sees all that the client has written and seen
// before, whichever instance answers, of the 32 aggregates that the answers have named last. The types
// of requests and answers are in the generated packages.
//
//	c, err := client.New(client.Options{Video: "localhost:8080", Catalog: "localhost:8081", Token: token})
//	created, err := c.Videos.CreateVideo(ctx, &videov1.CreateVideoRequest{Title: "Hello"})
//	fresh, err := c.Catalog.GetVideo(ctx, &catalogv1.GetVideoRequest{VideoId: created.GetVideo().GetVideoId()})
//
// A read that is answered with UNAVAILABLE is repeated up to twice, except in a longer outage. A write
// is not repeated, because it may have been carried out. A program that repeats a write sends it with a key each time:
//
//	ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", key)
//
// An error is a gRPC status. [Reason] returns its reason, which is stable; docs/grpc.md lists the reasons. [TraceID] returns
// what a report about an error should name.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"example.com/lockstep/pkg/eventing/session"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// DefaultTimeout ends a call whose context has no deadline.
const DefaultTimeout = 30 * time.Second

// Options says where the pair is, and for whom the client calls.
type Options struct {
	// Video and Catalog are the addresses of the services, host:port.
	Video, Catalog string
	// Token returns the user's bearer token. It is called for each request, so it may renew the
	// token. If Token is nil, no token is sent, which a pair that is open to every caller allows.
	Token func(context.Context) (string, error)
	// TLS is nil for plain text. New refuses plain text to a host other than loopback if Token is
	// set.
	TLS *tls.Config
	// DialOptions are further options of both connections, such as a handler that traces calls. The
	// security of the connections is that of TLS, whatever they say.
	DialOptions []grpc.DialOption
}

// Client has the services of the pair. It is safe for concurrent use. All calls of a Client are one
// session, so a program needs a Client for each user. Close a Client after its last use.
type Client struct {
	Videos      videov1.VideoServiceClient
	Engagements videov1.EngagementServiceClient
	Catalog     catalogv1.CatalogServiceClient

	session *session.Session
	close   func() error
}

// New returns a client. The client connects at its first call. An error names the invalid option.
func New(o Options) (*Client, error) {
	for name, addr := range map[string]string{"Video": o.Video, "Catalog": o.Catalog} {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, fmt.Errorf("client: %s: %q: want host:port", name, addr)
		}
		if o.Token != nil && o.TLS == nil && !isLoopback(host) {
			return nil, fmt.Errorf("client: TLS: a token for %s must not travel in plain text", addr)
		}
	}
	c := &Client{session: new(session.Session)}
	video, err := c.dial(o, o.Video)
	if err != nil {
		return nil, fmt.Errorf("client: Video: %w", err)
	}
	catalog, err := c.dial(o, o.Catalog)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("client: Catalog: %w", err), video.Close())
	}
	c.Videos = videov1.NewVideoServiceClient(video)
	c.Engagements = videov1.NewEngagementServiceClient(video)
	c.Catalog = catalogv1.NewCatalogServiceClient(catalog)
	c.close = func() error { return errors.Join(video.Close(), catalog.Close()) }
	return c, nil
}

// Close ends the connections; calls in flight fail.
func (c *Client) Close() error { return c.close() }

// Token returns the consistency token of all that the client has written and seen. It is empty
// while the client has seen nothing. Another client, or another program, may send the token with a
// read.
func (c *Client) Token() string { return c.session.Token() }

// Keep adds a consistency token to the session. Later reads see at least the state that the token
// names.
func (c *Client) Keep(token string) error { return c.session.Keep(token) }

// Forget drops all tokens of the session. A program needs it after an error with the reason TOKEN_AHEAD:
// the owner has lost a write of the session, and reads that require the write go on failing.
func (c *Client) Forget() { c.session.Forget() }

func (c *Client) dial(o Options, addr string) (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if o.TLS != nil {
		security = credentials.NewTLS(o.TLS)
	}
	opts := []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(c.inSession, session.Intercept),
		grpc.WithDefaultServiceConfig(retries),
		// A host may vanish without closing its connections. If a ping gets no answer within
		// Timeout, gRPC closes the connection.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
		// Somebody may be waiting, so the pause between two attempts stays below gRPC's default of two
		// minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if o.Token != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer(o.Token)))
	}
	opts = append(opts, o.DialOptions...)
	return grpc.NewClient(addr, append(opts, grpc.WithTransportCredentials(security))...) // the last one counts
}

// retries is the service config of both connections. It repeats reads, within the deadline of the call,
// after the pause that the answer names. It repeats no writes: gRPC cannot know whether a write has an
// idempotency key. The throttling ends the repetitions of a connection after some five failures, so that
// an outage does not triple the calls. Each ten successes make up for one failure.
const retries = `{"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.1}, "methodConfig": [{
	"name": [
		{"service": "catalog.v1.CatalogService"},
		{"service": "video.v1.EngagementService", "method": "GetEngagement"},
		{"service": "video.v1.EngagementService", "method": "ListEngagements"},
		{"service": "video.v1.VideoService", "method": "GetVideo"},
		{"service": "video.v1.VideoService", "method": "ListVideos"}
	],
	"retryPolicy": {
		"maxAttempts": 3, "initialBackoff": "0.1s", "maxBackoff": "2s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]
	}
}]}`

// inSession makes a call part of the client's session, and gives it a deadline.
func (c *Client) inSession(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	return invoke(session.With(ctx, c.session), method, req, reply, cc, opts...)
}

// bearer implements credentials.PerRPCCredentials.
type bearer func(context.Context) (string, error)

func (b bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	token, err := b(ctx)
	if err != nil {
		return nil, fmt.Errorf("client: Token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity returns false, because New has checked that plain text stays on this
// machine.
func (bearer) RequireTransportSecurity() bool { return false }

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

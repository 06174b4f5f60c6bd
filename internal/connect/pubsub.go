package connect

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"cloud.google.com/go/pubsub/v2"
	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
)

// emulatorHost is the environment variable in which the client library looks for the address of an emulator.
const emulatorHost = "PUBSUB_EMULATOR_HOST"

// maxWait bounds the pause between two attempts to connect or to publish. The libraries' own pauses
// grow to two minutes for connecting and to one minute for publishing. During such a pause a
// recovered broker would stay unused.
const maxWait = 2 * time.Second

// PubSubOptions configures NewPubSub. The zero value is valid.
type PubSubOptions struct {
	// Endpoint is a regional endpoint, such as europe-west1-pubsub.googleapis.com:443. With a
	// regional endpoint the messages of a key keep their order, because Pub/Sub keeps that order
	// only among publishers of one region. If Endpoint is empty, the client uses the global
	// endpoint. If PUBSUB_EMULATOR_HOST names a local broker, Endpoint is ignored.
	Endpoint string
	// Dial are further options of the connection.
	Dial []grpc.DialOption
}

// WarnOfOrder logs a warning if messages that are published with these options may lose the order
// of their keys. All publishers of a key must reach the same region. The global endpoint leads each
// publisher to the region that suits the publisher at the moment
// (https://cloud.google.com/pubsub/docs/ordering).
func (o PubSubOptions) WarnOfOrder(ctx context.Context, log *slog.Logger) {
	if o.Endpoint == "" && os.Getenv(emulatorHost) == "" {
		log.WarnContext(ctx, "events may leave through two regions, and out of order: set PUBSUB_ENDPOINT")
	}
}

// NewPubSub returns a client for the project. The client connects in the background, so NewPubSub
// does not fail if the broker is unreachable. The caller closes the client.
func NewPubSub(ctx context.Context, project string, opts PubSubOptions) (*pubsub.Client, error) {
	config := &pubsub.ClientConfig{TopicAdminCallOptions: &vkit.TopicAdminCallOptions{Publish: []gax.CallOption{gax.WithRetry(republish)}}}
	client, err := pubsub.NewClientWithConfig(ctx, project, config, clientOptions(opts)...)
	if err != nil {
		return nil, fmt.Errorf("connect to Pub/Sub: %w", err)
	}
	return client, nil
}

func clientOptions(opts PubSubOptions) []option.ClientOption {
	wait := backoff.DefaultConfig
	wait.BaseDelay, wait.MaxDelay = 100*time.Millisecond, maxWait
	reconnect := grpc.ConnectParams{Backoff: wait, MinConnectTimeout: 5 * time.Second}
	dial := []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithConnectParams(reconnect)),
		// The library's own value is five minutes, and none with a local broker.
		option.WithGRPCDialOption(grpc.WithKeepaliveParams(keepAlive)),
	}
	for _, d := range opts.Dial {
		dial = append(dial, option.WithGRPCDialOption(d))
	}
	if os.Getenv(emulatorHost) != "" {
		return append(dial, option.WithGRPCDialOption(grpc.WithChainStreamInterceptor(answerPings)))
	}
	if opts.Endpoint != "" {
		dial = append(dial, option.WithEndpoint(opts.Endpoint))
	}
	// Relay and consumer have the spans and metrics of this system. Each span of the library would begin
	// a new trace, with a sampling decision of its own. Each of its metrics would have a series for each
	// address of Google's that a connection leads to.
	return append(dial, option.WithTelemetryDisabled())
}

// republish retries a failed publish after the same error codes as the library, but with
// shorter pauses. The publisher's own timeout ends the retries.
func republish() gax.Retryer {
	transient := []codes.Code{
		codes.Aborted, codes.Canceled, codes.Internal, codes.ResourceExhausted,
		codes.Unknown, codes.Unavailable, codes.DeadlineExceeded,
	}
	return gax.OnCodes(transient, gax.Backoff{Initial: 100 * time.Millisecond, Max: maxWait, Multiplier: 2})
}

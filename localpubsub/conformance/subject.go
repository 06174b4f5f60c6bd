package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	gtransport "google.golang.org/api/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// maxResponse is the size of the largest answer that a trial accepts from a server. It has room for
// the largest message and its frame.
const maxResponse = 20 << 20

// Subject is a connection to a server under test that has the API of Pub/Sub. The caller of [Local]
// or [Google] must close the Subject.
type Subject struct {
	// Name is the heading of the subject's column.
	Name string
	// Departures has the server's known differences from the documentation, by the name of the
	// behaviour.
	Departures map[string]Departure

	conn       *grpc.ClientConn
	client     *pubsub.Client
	publisher  pubsubpb.PublisherClient
	subscriber pubsubpb.SubscriberClient
	schemas    pubsubpb.SchemaServiceClient
	policies   iampb.IAMPolicyClient

	project string // if empty, each trial has its own project
	prefix  string
	serial  atomic.Int64
}

// Local connects to the server at addr (host:port), in plain text. It connects
// in the background, so it returns no error if the server is unreachable.
func Local(ctx context.Context, name, addr string, departures map[string]Departure) (*Subject, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)))
	if err != nil {
		return nil, fmt.Errorf("connect to %s at %s: %w", name, addr, err)
	}
	return connect(ctx, conn, &Subject{Name: name, Departures: departures})
}

// Google connects to the real service with the application's default credentials. With these
// credentials, a caller must be allowed to administer Pub/Sub in the project. Each resource that a
// behaviour creates has a name with a random prefix, and is deleted at the end of the behaviour.
func Google(ctx context.Context, project string) (*Subject, error) {
	conn, err := gtransport.Dial(ctx, option.WithEndpoint("pubsub.googleapis.com:443"), option.WithScopes(pubsub.ScopePubSub),
		option.WithGRPCDialOption(grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse))))
	if err != nil {
		return nil, fmt.Errorf("connect to Pub/Sub: %w", err)
	}
	return connect(ctx, conn, &Subject{Name: project, project: project})
}

// connect sets the clients of s. If it fails, it closes conn.
func connect(ctx context.Context, conn *grpc.ClientConn, s *Subject) (*Subject, error) {
	project := s.project
	if project == "" {
		project = "none" // never used: trials use full resource names
	}
	client, err := pubsub.NewClient(ctx, project, option.WithGRPCConn(conn))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", s.Name, err), conn.Close())
	}
	s.conn, s.client = conn, client
	s.publisher, s.subscriber = pubsubpb.NewPublisherClient(conn), pubsubpb.NewSubscriberClient(conn)
	s.schemas, s.policies = pubsubpb.NewSchemaServiceClient(conn), iampb.NewIAMPolicyClient(conn)
	s.prefix = fmt.Sprintf("conformance-%08x", rand.Uint32())
	return s, nil
}

// Close ends the connection.
func (s *Subject) Close() error { return s.conn.Close() }

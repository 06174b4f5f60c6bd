package setup

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/localpubsub"
)

// Apply creates the resources of the file on the server: first the schemas, then the topics, then
// the subscriptions. At the end it sets the faults. If a resource fails, the error names this
// resource, and the server keeps the resources that were created before. So the caller should close
// the server after an error.
func (f File) Apply(ctx context.Context, server *localpubsub.Server) error {
	conn, err := grpc.NewClient("passthrough:///"+server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, step := range []func(context.Context, *grpc.ClientConn, string, Project) error{createSchemas, createTopics, createSubscriptions} {
		for _, project := range slices.Sorted(maps.Keys(f.Projects)) {
			if err := step(ctx, conn, "projects/"+project, f.Projects[project]); err != nil {
				return err
			}
		}
	}
	return server.SetFaults(f.Seed, f.Faults...)
}

func createSchemas(ctx context.Context, conn *grpc.ClientConn, parent string, p Project) error {
	client := pubsubpb.NewSchemaServiceClient(conn)
	for _, id := range slices.Sorted(maps.Keys(p.Schemas)) {
		_, err := client.CreateSchema(ctx, &pubsubpb.CreateSchemaRequest{
			Parent: parent, SchemaId: id,
			Schema: &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: p.Schemas[id].Definition},
		})
		if err != nil {
			return named("schema", parent, id, err)
		}
	}
	return nil
}

func createTopics(ctx context.Context, conn *grpc.ClientConn, parent string, p Project) error {
	client := pubsubpb.NewPublisherClient(conn)
	for _, id := range slices.Sorted(maps.Keys(p.Topics)) {
		t := p.Topics[id]
		topic := &pubsubpb.Topic{Name: parent + "/topics/" + id, MessageRetentionDuration: duration(t.Retention)}
		if t.Schema == "" && t.Encoding != "" {
			return fmt.Errorf("topic %s of %s: encoding: it needs a schema", id, parent)
		}
		if t.Schema != "" {
			encoding, err := encodingOf(t.Encoding)
			if err != nil {
				return named("topic", parent, id, err)
			}
			topic.SchemaSettings = &pubsubpb.SchemaSettings{Schema: full(parent, "schemas", t.Schema), Encoding: encoding}
		}
		if _, err := client.CreateTopic(ctx, topic); err != nil {
			return named("topic", parent, id, err)
		}
	}
	return nil
}

func createSubscriptions(ctx context.Context, conn *grpc.ClientConn, parent string, p Project) error {
	client := pubsubpb.NewSubscriberClient(conn)
	for _, id := range slices.Sorted(maps.Keys(p.Subscriptions)) {
		request, err := p.Subscriptions[id].request(parent, id)
		if err == nil {
			_, err = client.CreateSubscription(ctx, request)
		}
		if err != nil {
			return named("subscription", parent, id, err)
		}
	}
	return nil
}

func (s Subscription) request(parent, id string) (*pubsubpb.Subscription, error) {
	if s.Topic == "" {
		return nil, fmt.Errorf("topic: it is needed")
	}
	if s.AckDeadline%time.Second != 0 {
		return nil, fmt.Errorf("ack_deadline: %s is not in whole seconds", s.AckDeadline)
	}
	r := &pubsubpb.Subscription{
		Name: parent + "/subscriptions/" + id, Topic: full(parent, "topics", s.Topic), Filter: s.Filter,
		EnableMessageOrdering: s.Ordering, EnableExactlyOnceDelivery: s.ExactlyOnce,
		AckDeadlineSeconds: int32(s.AckDeadline / time.Second), RetainAckedMessages: s.RetainAcked,
		MessageRetentionDuration: duration(s.Retention),
	}
	if s.Retry != nil {
		r.RetryPolicy = &pubsubpb.RetryPolicy{MinimumBackoff: duration(s.Retry.Min), MaximumBackoff: duration(s.Retry.Max)}
	}
	if s.DeadLetter != nil {
		r.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{
			DeadLetterTopic: full(parent, "topics", s.DeadLetter.Topic), MaxDeliveryAttempts: s.DeadLetter.Attempts,
		}
	}
	return r, nil
}

// full returns the full name of a resource. name may be an id or already the full name.
func full(parent, kind, name string) string {
	if strings.HasPrefix(name, "projects/") {
		return name
	}
	return parent + "/" + kind + "/" + name
}

func encodingOf(name string) (pubsubpb.Encoding, error) {
	switch name {
	case "", "BINARY":
		return pubsubpb.Encoding_BINARY, nil
	case "JSON":
		return pubsubpb.Encoding_JSON, nil
	}
	return 0, fmt.Errorf("encoding: %q: want BINARY or JSON", name)
}

// duration converts d. It returns nil for 0, so that the server's default applies.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func named(kind, parent, id string, err error) error {
	return fmt.Errorf("%s %s of %s: %s", kind, id, parent, status.Convert(err).Message())
}

package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// connectTime bounds one attempt to connect.
const connectTime = 2 * time.Second

// everyCall makes every call wait for the broker, which may still be starting. It also gives every
// call a time limit.
const everyCall = `{"methodConfig":[{"name":[{}],"waitForReady":true,"timeout":"20s"}]}`

// lookedUpLate is the scheme of addresses that are resolved again for each attempt to connect. A
// restarted container may have another address.
const lookedUpLate = "passthrough:///"

// reconnect has the pauses between this client's attempts to connect to the broker. They are short, so that
// a broker that has lost its state gets its topics back before a publisher connects.
var reconnect = backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}

// Provisioned is the result of [Provision], as full resource names.
type Provisioned struct {
	Created, Existing []string
	// Changed are existing schemas that got a newer definition, and existing topics that got their
	// schema.
	Changed []string
	// Bounded are existing topics that accept some revisions of their schema only, each with its
	// bounds. They stay as they are.
	Bounded []string
	// Left are the schemas that the broker cannot hold. The official emulator supports no schemas
	// of protocol buffers.
	Left []string
}

// Provision creates the [Topology] in the project on the local broker at addr (host:port), with the
// schemas of [schemas.Definition]. It connects only to that address, in plain text, regardless of
// the environment, so it can never change the real service. Existing resources stay as they are,
// except that Provision updates schemas and attaches them to their topics. So Provision can be
// repeated, also after an error. It fails if Pub/Sub would not accept a schema as a revision of the
// existing schema, and if an existing subscription is of another topic or of a deleted one, or has
// another filter.
func Provision(ctx context.Context, addr, project string) (Provisioned, error) {
	conn, err := connect(addr)
	if err != nil {
		return Provisioned{}, err
	}
	defer conn.Close()
	return provision(ctx, conn, project)
}

func connect(addr string) (*grpc.ClientConn, error) {
	if addr == "" {
		return nil, errors.New("provision: no address of a local broker: set PUBSUB_EMULATOR_HOST")
	}
	conn, err := grpc.NewClient(lookedUpLate+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(everyCall),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: connectTime}))
	if err != nil {
		return nil, fmt.Errorf("provision %s: %w", addr, err)
	}
	return conn, nil
}

func provision(ctx context.Context, conn *grpc.ClientConn, project string) (Provisioned, error) {
	addr := strings.TrimPrefix(conn.Target(), lookedUpLate)
	p := provisioner{
		project: project, addr: addr, schemas: pubsubpb.NewSchemaServiceClient(conn),
		topics: pubsubpb.NewPublisherClient(conn), subscriptions: pubsubpb.NewSubscriberClient(conn),
	}
	if err := p.all(ctx); err != nil {
		return p.done, fmt.Errorf("provision %s: %w", addr, err)
	}
	return p.done, nil
}

type provisioner struct {
	project       string
	topics        pubsubpb.PublisherClient
	subscriptions pubsubpb.SubscriberClient
	schemas       pubsubpb.SchemaServiceClient
	addr          string // of the broker
	done          Provisioned
}

func (p *provisioner) parent() string { return "projects/" + p.project }

// all creates each subscription right after its topic, because a subscription does not get messages
// that were published before the subscription existed.
func (p *provisioner) all(ctx context.Context) error {
	ours := sync.OnceValue(func() bool { return isOurs(ctx, p.addr) }) // called only after the broker has answered
	topics, subscriptions := fullTopology(p.project)
	for _, topic := range topics {
		if err := p.topic(ctx, topic); err != nil {
			return err
		}
		for _, s := range subscriptions {
			if s.GetTopic() != topic {
				continue
			}
			if !ours() {
				fit(s)
			}
			if err := p.subscription(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// topic creates a topic with its schema, or attaches the schema to an existing
// topic.
func (p *provisioner) topic(ctx context.Context, name string) error {
	settings, err := p.schema(ctx, path.Base(name))
	if err != nil {
		return err
	}
	topic := &pubsubpb.Topic{Name: name, SchemaSettings: settings}
	_, err = p.topics.CreateTopic(ctx, topic)
	created, err := p.created(name, err)
	if created || err != nil || settings == nil {
		return err
	}
	return p.attach(ctx, topic)
}

// subscription creates a subscription. An existing one must be of the same topic.
func (p *provisioner) subscription(ctx context.Context, s *pubsubpb.Subscription) error {
	_, err := p.subscriptions.CreateSubscription(ctx, s)
	if created, err := p.created(s.GetName(), err); created || err != nil {
		return err
	}
	existing, err := p.subscriptions.GetSubscription(ctx, &pubsubpb.GetSubscriptionRequest{Subscription: s.GetName()})
	if err != nil {
		return fmt.Errorf("read %s: %w", s.GetName(), err)
	}
	if existing.GetFilter() != s.GetFilter() {
		// A filter cannot be changed.
		return fmt.Errorf("%s has the filter %q instead of %q, so it gets other messages: delete it, provision again, and reconcile the reader",
			s.GetName(), existing.GetFilter(), s.GetFilter())
	}
	if existing.GetTopic() != s.GetTopic() {
		// It gets no more messages. It may still have some, so that only its user can delete it.
		return fmt.Errorf("%s is of the topic %s, and gets no message of %s: delete it, and provision again",
			s.GetName(), existing.GetTopic(), s.GetTopic())
	}
	return nil
}

// created handles the outcome of a creation. It returns true if the resource is new, and false if
// it existed.
func (p *provisioner) created(name string, err error) (bool, error) {
	switch status.Code(err) {
	case codes.OK:
		p.done.Created = append(p.done.Created, name)
		return true, nil
	case codes.AlreadyExists:
		p.done.Existing = append(p.done.Existing, name)
		return false, nil
	default:
		return false, fmt.Errorf("create %s: %w", name, err)
	}
}

const (
	// askTime bounds the request that finds out the kind of the broker. The broker has answered
	// another request before, so it is no longer starting.
	askTime = 5 * time.Second
	// maxKept is the longest retention that other brokers accept.
	maxKept = 7 * 24 * time.Hour
)

// fit changes the settings of a subscription that only the repository's own broker supports. The
// official emulator fails for ever on the dead-letter policy of an ordered subscription. pstest,
// the Go client's fake, repeats a dead letter every 10 ms. Both refuse the longest retention that
// Pub/Sub allows.
func fit(s *pubsubpb.Subscription) {
	s.DeadLetterPolicy = nil
	s.MessageRetentionDuration = durationpb.New(min(s.GetMessageRetentionDuration().AsDuration(), maxKept))
}

// isOurs recognises the repository's own broker by its endpoint for faults, because no other broker
// has such an endpoint.
func isOurs(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/control/faults", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return false // pstest speaks gRPC only
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

package peers

import (
	"context"
	"errors"
	"maps"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/pkg/eventing"
)

// watermillSQL is the outbox of watermill. Its SQL publisher is wrapped by the publisher of the
// Forwarder. A Forwarder passes the messages from the SQL subscriber to Pub/Sub.
type watermillSQL struct{ schema watermillSchema }

type watermillSchema int

const (
	defaultSchema watermillSchema = iota // a table of offsets, by consumer group
	queueSchema                          // each message is marked
)

const (
	// watermillPoll is the PollInterval of the SQL subscriber. Its default is one second. With a
	// shorter interval than watermillPoll, an idle subscriber takes a noticeable part of a core.
	watermillPoll = 5 * time.Millisecond
	// orderingKey is the metadata that becomes the ordering key.
	orderingKey = "ordering_key"
)

func (w watermillSQL) adapters() (sql.SchemaAdapter, sql.OffsetsAdapter) {
	if w.schema == queueSchema {
		return sql.PostgreSQLQueueSchema{}, sql.PostgreSQLQueueOffsetsAdapter{}
	}
	return sql.DefaultPostgreSQLSchema{}, sql.DefaultPostgreSQLOffsetsAdapter{}
}

func (w watermillSQL) subscriber(db *pgxpool.Pool) (*sql.Subscriber, error) {
	schema, offsets := w.adapters()
	return sql.NewSubscriber(sql.BeginnerFromPgx(db), sql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: offsets, PollInterval: watermillPoll, RetryInterval: watermillPoll, ResendInterval: watermillPoll,
	}, watermill.NopLogger{})
}

// forwarderTopic is the name of the table's topic.
const forwarderTopic = "outbox_forwarder"

// Schema implements [Peer].
func (w watermillSQL) Schema(_ context.Context, db *pgxpool.Pool) error {
	s, err := w.subscriber(db)
	if err != nil {
		return err
	}
	return errors.Join(s.SubscribeInitialize(forwarderTopic), s.Close())
}

// Append implements [Peer].
func (w watermillSQL) Append(_ context.Context, tx pgx.Tx, events []eventing.Event) error {
	schema, _ := w.adapters()
	p, err := sql.NewPublisher(sql.TxFromPgx(tx), sql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	messages := make([]*message.Message, len(events))
	for i, e := range events {
		m := e.Message()
		messages[i] = message.NewMessage(e.ID.String(), m.GetData())
		maps.Copy(messages[i].Metadata, m.GetAttributes())
		messages[i].Metadata[orderingKey] = m.GetOrderingKey()
	}
	return forwarder.NewPublisher(p, forwarder.PublisherConfig{ForwarderTopic: forwarderTopic}).Publish(rig.Topic, messages...)
}

// NewRelay implements [Peer].
func (w watermillSQL) NewRelay(db *pgxpool.Pool, client *pubsub.Client) (Relay, error) {
	s, err := w.subscriber(db)
	if err != nil {
		return nil, err
	}
	to := &toPubSub{publisher: orderedPublisher(client, 1)}
	f, err := forwarder.NewForwarder(s, to, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: forwarderTopic, CloseTimeout: time.Second})
	return watermillRelay{f, unaware{w}}, err
}

type watermillRelay struct {
	*forwarder.Forwarder
	unaware
}

// toPubSub is a watermill publisher. It waits for the answer to each message, like watermill's own
// publisher for Google Cloud.
type toPubSub struct{ publisher *pubsub.Publisher }

// Publish implements watermill's publisher.
func (p *toPubSub) Publish(_ string, messages ...*message.Message) error {
	for _, m := range messages {
		attributes := maps.Clone(map[string]string(m.Metadata))
		key := attributes[orderingKey]
		delete(attributes, orderingKey)
		err := publishOrdered(m.Context(), p.publisher, &pubsub.Message{Data: m.Payload, Attributes: attributes, OrderingKey: key})
		if err != nil {
			return err
		}
	}
	return nil
}

// Close implements watermill's publisher.
func (p *toPubSub) Close() error {
	p.publisher.Stop()
	return nil
}

// orderedPublisher returns the client's own publisher, with ordering keys. It sends a request when
// it has the given number of messages, or after a millisecond.
func orderedPublisher(client *pubsub.Client, messages int) *pubsub.Publisher {
	p := client.Publisher(rig.Topic)
	p.EnableMessageOrdering = true
	p.PublishSettings.CountThreshold = messages
	p.PublishSettings.DelayThreshold = time.Millisecond
	return p
}

// publishOrdered publishes m and waits for the broker's answer. After a failure, the client refuses
// further messages of the key until ResumePublish is called.
func publishOrdered(ctx context.Context, p *pubsub.Publisher, m *pubsub.Message) error {
	_, err := p.Publish(ctx, m).Get(ctx)
	if err != nil {
		p.ResumePublish(m.OrderingKey)
	}
	return err
}

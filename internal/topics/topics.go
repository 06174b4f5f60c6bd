// Package topics is the one list of the pair's topics and subscriptions. Services, operators'
// commands, alerts, schemas, local provisioning and Terraform use it. A test checks that no
// other code names a topic or a subscription.
//
// Each kind of aggregate has a topic. Each reader of a topic has a subscription, and each
// subscription has a topic for dead letters, with a subscription of the same name. The names are
// part of the contract with other teams, so they never change.
package topics

// The topics, one per kind of aggregate.
const (
	Video      = "video.events"
	Engagement = "engagement.events"
)

// Catalog is the reader that follows all topics.
const Catalog = "catalog"

// Topic carries the events of one kind of aggregate.
type Topic struct {
	Name string
	// Aggregate is the aggregate type of the topic's events. Their protobuf messages are in
	// proto/AGGREGATE/events/v1.
	Aggregate string
}

// All are the topics. `make generate` writes their names for Terraform.
var All = []Topic{
	{Name: Video, Aggregate: "video"},
	{Name: Engagement, Aggregate: "engagement"},
}

// Names are the names of all topics, in the order of [All].
func Names() []string {
	names := make([]string, len(All))
	for i, t := range All {
		names[i] = t.Name
	}
	return names
}

// Aggregates are the aggregate types, in the order of [All].
func Aggregates() []string {
	types := make([]string, len(All))
	for i, t := range All {
		types[i] = t.Aggregate
	}
	return types
}

// Subscription is a reader's subscription to a topic.
func Subscription(topic, reader string) string { return topic + "." + reader }

// Subscriptions are the reader's subscriptions to all topics, in the order of [All].
func Subscriptions(reader string) []string {
	names := Names()
	for i, topic := range names {
		names[i] = Subscription(topic, reader)
	}
	return names
}

// DeadLetters returns the name of the topic for messages that a subscription could not process.
// The subscription of that topic has the same name.
func DeadLetters(subscription string) string { return subscription + ".dlq" }

// InProject is a topic's full name.
func InProject(project, topic string) string { return "projects/" + project + "/topics/" + topic }

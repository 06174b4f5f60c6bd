package inbox

import (
	"context"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// lookAtTopicEvery is how often a consumer looks whether its subscription has a topic, and
	// lookAtTopicTime bounds one look.
	lookAtTopicEvery = time.Minute
	lookAtTopicTime  = 10 * time.Second
	// deletedTopic is the topic of a subscription whose topic was deleted.
	deletedTopic = "_deleted-topic_"
)

// watchTopic looks until ctx ends whether the subscription still has its topic. If the topic is
// deleted, the broker refuses no pull, and no event comes any more. A new topic of the same name does
// not get the subscription back. Without a look, an operator who has only created the topic again
// would take the silence for health.
func (c *Consumer) watchTopic(ctx context.Context) {
	for {
		c.lookAtTopic(ctx)
		if !backoff.Sleep(ctx, lookAtTopicEvery, nil) {
			return
		}
	}
}

// lookAtTopic shows in the log and in a metric that the subscription has no topic, and in the log that it
// has a filter. If the subscription cannot be read, the result of the last look stays, because a consumer
// may lack the permission to read its subscription.
func (c *Consumer) lookAtTopic(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, lookAtTopicTime)
	defer cancel()
	found, err := c.admin.GetSubscription(asking, &pubsubpb.GetSubscriptionRequest{Subscription: c.subscriber.String()})
	if err != nil {
		c.log.DebugContext(ctx, "topic of the subscription not looked at", "error", err)
		return
	}
	gone := found.GetTopic() == deletedTopic
	c.metrics.noTopic.Store(gone)
	if gone {
		c.log.ErrorContext(ctx, "subscription gets no events, its topic was deleted: delete the subscription, and create it again")
	}
	c.sayFilter(ctx, found.GetFilter())
}

// sayFilter logs a filter that was not there at the last look. The broker acknowledges the messages that a
// filter leaves out, so nothing else shows them. An operator may have set the filter on purpose. So
// sayFilter logs one line, and no metric shows a failure.
func (c *Consumer) sayFilter(ctx context.Context, filter string) {
	if filter != "" && filter != c.filter {
		c.log.WarnContext(ctx, "subscription has a filter: the events that it leaves out never arrive", "filter", filter)
	}
	c.filter = filter
}

package resource

import (
	"regexp"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// The bounds and defaults of configurations
// (https://cloud.google.com/pubsub/docs/subscription-properties).
const (
	minAckDeadline    = 10
	maxAckDeadline    = 600
	minRetention      = 10 * time.Minute
	maxRetention      = 31 * 24 * time.Hour
	defaultRetention  = 7 * 24 * time.Hour
	minTTL            = 24 * time.Hour
	defaultTTL        = 31 * 24 * time.Hour
	maxBackoff        = 600 * time.Second
	defaultMinBackoff = 10 * time.Second
	minDeliveries     = 5
	maxDeliveries     = 100
	maxLabels         = 64
)

var labelPart = regexp.MustCompile(`^[\p{Ll}\p{Lo}\p{N}_-]{0,63}$`)

// CheckTopic validates the configuration, except its schema.
func CheckTopic(config *pubsubpb.Topic) error {
	if err := CheckName(config.GetName(), "topics", "name"); err != nil {
		return err
	}
	if err := CheckLabels(config.GetLabels()); err != nil {
		return err
	}
	if r := config.GetMessageRetentionDuration(); r != nil {
		if err := checkDuration(r, "message_retention_duration", minRetention, maxRetention); err != nil {
			return err
		}
	}
	if config.GetIngestionDataSourceSettings() != nil {
		return unserved("ingestion_data_source_settings")
	}
	if len(config.GetMessageTransforms()) > 0 {
		return unserved("message_transforms")
	}
	return nil
}

// CheckSubscription validates the configuration, except its dead letter policy,
// and fills in defaults.
func CheckSubscription(config *pubsubpb.Subscription) error {
	if err := CheckName(config.GetName(), "subscriptions", "name"); err != nil {
		return err
	}
	if err := CheckLabels(config.GetLabels()); err != nil {
		return err
	}
	for field, set := range map[string]bool{
		"push_config":          config.GetPushConfig().GetPushEndpoint() != "",
		"bigquery_config":      config.GetBigqueryConfig().GetTable() != "",
		"cloud_storage_config": config.GetCloudStorageConfig().GetBucket() != "",
		"bigtable_config":      config.GetBigtableConfig() != nil,
		"message_transforms":   len(config.GetMessageTransforms()) > 0,
	} {
		if set {
			return unserved(field)
		}
	}
	if config.GetAckDeadlineSeconds() == 0 {
		config.AckDeadlineSeconds = minAckDeadline
	}
	if err := CheckDeadline(config.GetAckDeadlineSeconds(), "ack_deadline_seconds"); err != nil {
		return err
	}
	for _, check := range []func(*pubsubpb.Subscription) error{checkKeeping, checkExpiry, checkRetry} {
		if err := check(config); err != nil {
			return err
		}
	}
	return nil
}

func checkKeeping(config *pubsubpb.Subscription) error {
	if config.GetMessageRetentionDuration() == nil {
		config.MessageRetentionDuration = durationpb.New(defaultRetention)
	}
	return checkDuration(config.GetMessageRetentionDuration(), "message_retention_duration", minRetention, maxRetention)
}

// checkExpiry checks the expiration policy. A policy without a time to live is valid, and means
// that the subscription never expires.
func checkExpiry(config *pubsubpb.Subscription) error {
	if config.GetExpirationPolicy() == nil {
		config.ExpirationPolicy = &pubsubpb.ExpirationPolicy{Ttl: durationpb.New(defaultTTL)}
	}
	ttl := config.GetExpirationPolicy().GetTtl()
	if ttl == nil {
		return nil
	}
	if err := checkDuration(ttl, "expiration_policy.ttl", minTTL, time.Duration(1<<63-1)); err != nil {
		return err
	}
	if ttl.AsDuration() < config.GetMessageRetentionDuration().AsDuration() {
		return Invalid("expiration_policy.ttl", "%s is shorter than message_retention_duration", ttl.AsDuration())
	}
	return nil
}

func checkRetry(config *pubsubpb.Subscription) error {
	policy := config.GetRetryPolicy()
	if policy == nil {
		return nil
	}
	if policy.GetMinimumBackoff() == nil {
		policy.MinimumBackoff = durationpb.New(defaultMinBackoff)
	}
	if policy.GetMaximumBackoff() == nil {
		policy.MaximumBackoff = durationpb.New(maxBackoff)
	}
	if err := checkDuration(policy.GetMinimumBackoff(), "retry_policy.minimum_backoff", 0, maxBackoff); err != nil {
		return err
	}
	if err := checkDuration(policy.GetMaximumBackoff(), "retry_policy.maximum_backoff", 0, maxBackoff); err != nil {
		return err
	}
	if policy.GetMinimumBackoff().AsDuration() > policy.GetMaximumBackoff().AsDuration() {
		return Invalid("retry_policy.minimum_backoff", "it is longer than maximum_backoff")
	}
	return nil
}

// CheckDeadLetters checks a dead letter policy, and fills in the default number of attempts. It
// does not check whether the policy's topic exists. A nil policy is valid.
func CheckDeadLetters(policy *pubsubpb.DeadLetterPolicy) error {
	if policy == nil {
		return nil
	}
	if policy.GetMaxDeliveryAttempts() == 0 {
		policy.MaxDeliveryAttempts = minDeliveries
	}
	if n := policy.GetMaxDeliveryAttempts(); n < minDeliveries || n > maxDeliveries {
		return Invalid("dead_letter_policy.max_delivery_attempts", "%d is not between %d and %d", n, minDeliveries, maxDeliveries)
	}
	return nil
}

func checkDuration(d *durationpb.Duration, field string, low, high time.Duration) error {
	if err := d.CheckValid(); err != nil {
		return Invalid(field, "%v", err)
	}
	if value := d.AsDuration(); value < low || value > high {
		return Invalid(field, "%s is not between %s and %s", value, low, high)
	}
	return nil
}

// CheckDeadline checks the acknowledgement deadline of a subscription or a stream.
func CheckDeadline(seconds int32, field string) error {
	if seconds < minAckDeadline || seconds > maxAckDeadline {
		return Invalid(field, "%d is not between %d and %d", seconds, minAckDeadline, maxAckDeadline)
	}
	return nil
}

// CheckModify checks the new deadline of a lease. It may be shorter than the shortest deadline of a
// subscription.
func CheckModify(seconds int32, field string) error {
	if seconds < 0 || seconds > maxAckDeadline {
		return Invalid(field, "%d is not between 0 and %d", seconds, maxAckDeadline)
	}
	return nil
}

// CheckLabels checks the labels of a resource.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return Invalid("labels", "%d labels, there may be %d", len(labels), maxLabels)
	}
	for key, value := range labels {
		if key == "" || !labelPart.MatchString(key) || !labelPart.MatchString(value) {
			return Invalid("labels", "%q: %q: at most 63 lower-case letters, digits, _ and - each", key, value)
		}
	}
	return nil
}

func unserved(field string) error {
	return status.Errorf(codes.Unimplemented, "%s: this server keeps and delivers messages only", field)
}

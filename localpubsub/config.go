package localpubsub

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

// Bounds and defaults of the configuration
// (https://cloud.google.com/pubsub/docs/subscription-properties).
const (
	minAckDeadline     = 10
	maxAckDeadline     = 600
	minRetention       = 10 * time.Minute
	maxRetention       = 31 * 24 * time.Hour
	defaultRetention   = 7 * 24 * time.Hour
	minTTL             = 24 * time.Hour
	defaultTTL         = 31 * 24 * time.Hour
	maxBackoff         = 600 * time.Second
	defaultMinBackoff  = 10 * time.Second
	minDeliveries      = 5
	maxDeliveries      = 100
	maxLabels          = 64
	subscriptionsField = "subscriptions"
)

var labelPart = regexp.MustCompile(`^[\p{Ll}\p{Lo}\p{N}_-]{0,63}$`)

func checkTopic(config *pubsubpb.Topic) error {
	if err := checkName(config.GetName(), "topics", "name"); err != nil {
		return err
	}
	if err := checkLabels(config.GetLabels()); err != nil {
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

// checkTopicSchema is called for new settings only: the schema may be deleted
// later.
func (s *Server) checkTopicSchema(config *pubsubpb.Topic) error {
	if config.GetSchemaSettings() == nil {
		return nil
	}
	return s.schemas.checkSettings(config.GetSchemaSettings())
}

// maskNames says whether a mask names a field or a part of it.
func maskNames(mask *fieldmaskpb.FieldMask, field string) bool {
	return slices.ContainsFunc(mask.GetPaths(), func(path string) bool { return path == field || strings.HasPrefix(path, field+".") })
}

// checkSubscription validates the configuration and fills in defaults.
func checkSubscription(config *pubsubpb.Subscription) error {
	if err := checkName(config.GetName(), subscriptionsField, "name"); err != nil {
		return err
	}
	if err := checkLabels(config.GetLabels()); err != nil {
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
	if err := checkDeadline(config.GetAckDeadlineSeconds(), "ack_deadline_seconds"); err != nil {
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

// checkExpiry treats a policy without a time to live as "never expires".
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
		return invalid("expiration_policy.ttl", "%s is shorter than message_retention_duration", ttl.AsDuration())
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
		return invalid("retry_policy.minimum_backoff", "it is longer than maximum_backoff")
	}
	return nil
}

// checkDeadLetters is called for a new policy only: its topic may be deleted
// later.
func (s *Server) checkDeadLetters(config *pubsubpb.Subscription) error {
	policy := config.GetDeadLetterPolicy()
	if policy == nil {
		return nil
	}
	if policy.GetMaxDeliveryAttempts() == 0 {
		policy.MaxDeliveryAttempts = minDeliveries
	}
	if n := policy.GetMaxDeliveryAttempts(); n < minDeliveries || n > maxDeliveries {
		return invalid("dead_letter_policy.max_delivery_attempts", "%d is not between %d and %d", n, minDeliveries, maxDeliveries)
	}
	if s.topic(policy.GetDeadLetterTopic()) == nil {
		return missing(policy.GetDeadLetterTopic())
	}
	return nil
}

func checkDuration(d *durationpb.Duration, field string, low, high time.Duration) error {
	if err := d.CheckValid(); err != nil {
		return invalid(field, "%v", err)
	}
	if value := d.AsDuration(); value < low || value > high {
		return invalid(field, "%s is not between %s and %s", value, low, high)
	}
	return nil
}

func checkDeadline(seconds int32, field string) error {
	if seconds < minAckDeadline || seconds > maxAckDeadline {
		return invalid(field, "%d is not between %d and %d", seconds, minAckDeadline, maxAckDeadline)
	}
	return nil
}

// checkModify checks a new lease time. It may be shorter than the shortest
// deadline of a subscription.
func checkModify(seconds int32, field string) error {
	if seconds < 0 || seconds > maxAckDeadline {
		return invalid(field, "%d is not between 0 and %d", seconds, maxAckDeadline)
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid("labels", "%d labels, there may be %d", len(labels), maxLabels)
	}
	for key, value := range labels {
		if key == "" || !labelPart.MatchString(key) || !labelPart.MatchString(value) {
			return invalid("labels", "%q: %q: at most 63 lower-case letters, digits, _ and - each", key, value)
		}
	}
	return nil
}

func unserved(field string) error {
	return status.Errorf(codes.Unimplemented, "%s: this server keeps and delivers messages only", field)
}

// The top-level fields that an update mask may name.
var (
	mutableTopic = []string{
		"labels", "message_storage_policy", "kms_key_name", "schema_settings", "message_retention_duration",
		"ingestion_data_source_settings", "message_transforms", "tags",
	}
	mutableSubscription = []string{
		"push_config", "bigquery_config", "cloud_storage_config", "bigtable_config", "ack_deadline_seconds",
		"retain_acked_messages", "message_retention_duration", "labels", "expiration_policy", "dead_letter_policy",
		"retry_policy", "enable_exactly_once_delivery", "message_transforms", "tags",
	}
	mutableSnapshot = []string{"labels", "expire_time"}
)

func mutable(path string, fields []string) bool {
	first, _, _ := strings.Cut(path, ".")
	return slices.Contains(fields, first)
}

package broker

import (
	"context"
	"net/http"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	// askTime bounds the request for the kind of a broker that has answered
	// before.
	askTime = 5 * time.Second
	// maxKept is the longest retention that other brokers accept.
	maxKept = 7 * 24 * time.Hour
)

// fit removes the settings of a subscription that brokers other than the repository's
// own do not support. The official emulator fails for ever on the dead-letter policy of
// an ordered subscription, pstest, the Go client's fake, repeats a dead letter every
// 10 ms, and both refuse a retention as long as Pub/Sub's.
func fit(s *pubsubpb.Subscription) {
	s.DeadLetterPolicy = nil
	s.MessageRetentionDuration = durationpb.New(min(s.GetMessageRetentionDuration().AsDuration(), maxKept))
}

// isOurs recognises the repository's own broker by its endpoint for faults; no other
// broker has one.
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

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

// brokerKind is the kind of a broker, if it is known.
type brokerKind int

const (
	unasked brokerKind = iota
	ours
	another
)

// fit removes the settings of a subscription that other brokers do not support.
// The official emulator fails for ever on the dead-letter policy of an ordered
// subscription, pstest, the Go client's fake, repeats a dead letter every 10 ms, and both
// refuse a retention as long as Pub/Sub's.
func (p *provisioner) fit(ctx context.Context, s *pubsubpb.Subscription) {
	if p.of == unasked {
		p.of = askKind(ctx, p.addr)
	}
	if p.of == ours {
		return
	}
	s.DeadLetterPolicy = nil
	s.MessageRetentionDuration = durationpb.New(min(s.GetMessageRetentionDuration().AsDuration(), maxKept))
}

// askKind recognises the repository's own broker by its endpoint for faults; no
// other broker has one.
func askKind(ctx context.Context, addr string) brokerKind {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/control/faults", nil)
	if err != nil {
		return another
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return another // pstest speaks gRPC only
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return another
	}
	return ours
}

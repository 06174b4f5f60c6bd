package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/topics"
)

// fault is one fault that the repository's own broker injects. Its JSON is what the broker expects.
type fault struct {
	Kind   string `json:"kind"`
	Method string `json:"method,omitempty"`
	Key    string `json:"key,omitempty"`
}

// setFaults replaces all faults of the broker by the given faults. If none is given, the broker has
// no faults afterwards.
func (p *Pair) setFaults(ctx context.Context, all ...fault) error {
	return p.control(ctx, http.MethodPut, "faults", map[string]any{"seed": 1, "faults": append([]fault{}, all...)}, nil)
}

func (p *Pair) withoutFaults(ctx context.Context) error { return p.setFaults(ctx) }

// endLeases moves the broker's clock ahead by one minute. If a consumer was killed, the messages
// that it had received stay hidden for less than that. So the broker sends these messages
// again.
func (p *Pair) endLeases(ctx context.Context) error {
	return p.control(ctx, http.MethodPost, "advance", map[string]any{"by": "1m"}, nil)
}

// acknowledged waits until catalog has acknowledged each message. This includes messages that the
// broker sends again.
func (p *Pair) acknowledged(ctx context.Context) error {
	return until(ctx, "catalog has acknowledged each message", func(ctx context.Context) (bool, error) {
		var backlog map[string]int
		if err := p.control(ctx, http.MethodGet, "backlog", nil, &backlog); err != nil {
			return false, err
		}
		for _, subscription := range topics.Subscriptions(topics.Catalog) {
			if backlog["projects/"+p.Project+"/subscriptions/"+subscription] > 0 {
				return false, nil
			}
		}
		return true, nil
	})
}

// control sends a request to an endpoint under /control of the broker, and reads the answer.
// request is nil for a request without a body. answer is nil if the caller does not need the
// answer.
func (p *Pair) control(ctx context.Context, method, path string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	var body io.Reader
	if request != nil {
		text, err := json.Marshal(request)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+p.Broker+"/control/"+path, body)
	if err != nil {
		return err
	}
	response, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode >= http.StatusMultipleChoices:
		return errors.New("the broker answered " + response.Status)
	case answer == nil:
		return nil
	default:
		return json.NewDecoder(response.Body).Decode(answer)
	}
}

// publish sends messages directly to the topic, not through the outbox.
func (p *Pair) publish(ctx context.Context, topic string, messages ...*pubsubpb.PubsubMessage) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	conn, err := grpc.NewClient(p.Broker, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = pubsubpb.NewPublisherClient(conn).Publish(ctx, &pubsubpb.PublishRequest{
		Topic: "projects/" + p.Project + "/topics/" + topic, Messages: messages,
	})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// brokerState describes the faults that are set in the broker, and returns whether the broker is
// up. The control endpoint answers even during an injected outage. In this case up is false.
func (p *Pair) brokerState(ctx context.Context) (faults string, up bool) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTime)
	defer cancel()
	const working = "topics and subscriptions"
	if !p.faults {
		response, err := p.client.Get(ctx, "http://"+p.Broker+"/")
		if err != nil {
			return "", false
		}
		response.Body.Close()
		return working, true
	}
	var set struct {
		Faults []fault `json:"faults"`
	}
	switch err := p.control(ctx, http.MethodGet, "faults", nil, &set); {
	case err != nil:
		return "", false
	case len(set.Faults) == 0:
		return working, true
	}
	first := set.Faults[0] // a scenario sets one fault at a time
	return "injected fault: " + first.Kind + " " + first.Method, first != fault{Kind: "outage"}
}

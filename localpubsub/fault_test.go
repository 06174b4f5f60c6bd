package localpubsub_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/localpubsub"
)

func (w *world) faults(all ...localpubsub.Fault) {
	w.t.Helper()
	if err := w.SetFaults(1, all...); err != nil {
		w.t.Fatal(err)
	}
}

// try publishes the message "m" and returns the status.
func (w *world) try(key string) codes.Code {
	_, err := w.Publish(w.context(), &pubsubpb.PublishRequest{
		Topic: topicName, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("m"), OrderingKey: key}},
	})
	return status.Code(err)
}

func plain(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{})
	return w
}

func TestCallFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault localpubsub.Fault
		want  codes.Code
		texts []string // of messages that are delivered nonetheless
	}{
		"outage":           {localpubsub.Fault{Kind: localpubsub.Outage, Method: "Publish"}, codes.Unavailable, nil},
		"throttle":         {localpubsub.Fault{Kind: localpubsub.Throttle, Method: "Publish"}, codes.ResourceExhausted, nil},
		"answer lost":      {localpubsub.Fault{Kind: localpubsub.AnswerLost, Method: "Publish"}, codes.Unavailable, []string{"m"}},
		"of another":       {localpubsub.Fault{Kind: localpubsub.Outage, Method: "Acknowledge"}, codes.OK, []string{"m"}},
		"repeated":         {localpubsub.Fault{Kind: localpubsub.Repeat}, codes.OK, []string{"m", "m"}},
		"rejected":         {localpubsub.Fault{Kind: localpubsub.Reject, Key: "A"}, codes.InvalidArgument, nil},
		"another rejected": {localpubsub.Fault{Kind: localpubsub.Reject, Key: "B"}, codes.OK, []string{"m"}},
		"delayed":          {localpubsub.Fault{Kind: localpubsub.Latency, Delay: 1}, codes.OK, []string{"m"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := plain(t)
			w.faults(test.fault)
			if got := w.try("A"); got != test.want {
				t.Errorf("publish = %s, want %s", got, test.want)
			}
			w.faults()
			wantTexts(t, w.pull(), test.texts...)
		})
	}
}

func TestFaultIsLimitedByTimes(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.faults(localpubsub.Fault{Kind: localpubsub.Outage, Method: "Publish", Times: 2})
	for _, want := range []codes.Code{codes.Unavailable, codes.Unavailable, codes.OK, codes.OK} {
		if got := w.try(""); got != want {
			t.Errorf("publish = %s, want %s", got, want)
		}
	}
}

func TestFaultsFollowTheirSeed(t *testing.T) {
	t.Parallel()
	history := func(seed uint64) (codes []codes.Code) {
		w := plain(t)
		if err := w.SetFaults(seed, localpubsub.Fault{Kind: localpubsub.Outage, Method: "Publish", Probability: 0.5}); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			codes = append(codes, w.try(""))
		}
		return codes
	}
	first, again, other := history(7), history(7), history(8)
	struck, differs := 0, false
	for i := range first {
		if first[i] != again[i] {
			t.Fatalf("call %d: %s and %s with one seed", i, first[i], again[i])
		}
		if first[i] != codes.OK {
			struck++
		}
		differs = differs || first[i] != other[i]
	}
	if struck < 8 || struck > 32 || !differs {
		t.Errorf("%d of 40 at probability 0.5; another seed differs: %v", struck, differs)
	}
}

// A publish is carried out even if its caller has given up.
func TestLatePublish(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.faults(localpubsub.Fault{Kind: localpubsub.Late, Method: "Publish", Delay: localpubsub.Duration(6 * time.Second)})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // long enough to reach the server, also on a busy machine
	defer cancel()
	_, err := w.Publish(ctx, &pubsubpb.PublishRequest{Topic: topicName, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("m")}}})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Fatalf("publish = %v", err)
	}
	wantTexts(t, w.stream(0).receive(1), "m")
}

func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.publish("", "m")
	w.faults(localpubsub.Fault{Kind: localpubsub.AckLost})
	w.ack(w.pull()...)
	wantTexts(t, w.pull())
	w.clock.Advance(11 * time.Second)
	wantTexts(t, w.pull(), "m")
}

func TestResend(t *testing.T) {
	t.Parallel()
	w := plain(t)
	ids := w.publish("", "m")
	w.faults(localpubsub.Fault{Kind: localpubsub.Resend, Times: 1})
	w.ack(w.pull()...)
	again := w.pull()
	wantTexts(t, again, "m")
	if again[0].GetMessage().GetMessageId() != ids[0] {
		t.Errorf("it came as %s, was %s", again[0].GetMessage().GetMessageId(), ids[0])
	}
	w.ack(again...)
	wantTexts(t, w.pull())
}

func TestReorder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true})
	w.faults(localpubsub.Fault{Kind: localpubsub.Reorder})
	w.publish("", numbered("m", 20)...)
	w.publish("A", numbered("a", 20)...)
	var keyed, unkeyed []string
	for _, m := range w.pull() {
		if m.GetMessage().GetOrderingKey() == "" {
			unkeyed = append(unkeyed, string(m.GetMessage().GetData()))
		} else {
			keyed = append(keyed, string(m.GetMessage().GetData()))
		}
	}
	if strings.Join(unkeyed, "") == strings.Join(numbered("m", 20), "") {
		t.Error("messages without key came in order")
	}
	if strings.Join(keyed, "") != strings.Join(numbered("a", 20), "") {
		t.Errorf("messages of a key came as %q", keyed)
	}
}

func TestStreamFaults(t *testing.T) {
	t.Parallel()
	w := plain(t)
	s := w.stream(0)
	w.faults(localpubsub.Fault{Kind: localpubsub.Reset})
	w.publish("", "m")
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a reset stream ends with %v", err)
	}
	w.faults(localpubsub.Fault{Kind: localpubsub.Slow, Rate: 1000}, localpubsub.Fault{Kind: localpubsub.Latency, Delay: 1})
	s = w.stream(0)
	s.quiet() // the messages of the reset stream stay leased
	w.clock.Advance(11 * time.Second)
	wantTexts(t, s.receive(1), "m")
	w.faults(localpubsub.Fault{Kind: localpubsub.Outage})
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("in an outage a stream ends with %v", err)
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	w := plain(t)
	call := func(method, path, body string) (int, string) {
		request, err := http.NewRequestWithContext(w.context(), method, "http://"+w.Addr()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	if code, text := call(http.MethodGet, "/", ""); code != http.StatusOK || !strings.HasPrefix(strings.ToLower(text), "ok") {
		t.Errorf("GET / = %d %q", code, text)
	}
	set := `{"seed":7,"faults":[{"kind":"outage","method":"Publish"},{"kind":"latency","probability":0.5,"delay":"5ms"}]}`
	if code, text := call(http.MethodPut, "/control/faults", set); code != http.StatusOK || strings.TrimSpace(text) != set {
		t.Errorf("set faults = %d %s", code, text)
	}
	if code, text := call(http.MethodGet, "/control/faults", ""); code != http.StatusOK || strings.TrimSpace(text) != set {
		t.Errorf("get faults = %d %s", code, text)
	}
	if got := w.try(""); got != codes.Unavailable {
		t.Errorf("publish in an outage = %s", got)
	}
	for body, want := range map[string]string{
		`{"faults":[{"kind":"flood"}]}`: "kind", `{"fault":[]}`: "fault", `{} {}`: "more than one", ``: "EOF",
	} {
		if code, text := call(http.MethodPut, "/control/faults", body); code != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("set %s = %d %s", body, code, text)
		}
	}
	before := w.clock.Now()
	if code, text := call(http.MethodPost, "/control/advance", `{"by":"10m"}`); code != http.StatusNoContent {
		t.Errorf("advance = %d %s", code, text)
	}
	if passed := w.clock.Now().Sub(before); passed != 10*time.Minute {
		t.Errorf("the clock went on by %s", passed)
	}
	if code, _ := call(http.MethodPost, "/control/advance", `{"by":"-10m"}`); code != http.StatusBadRequest {
		t.Errorf("backwards = %d", code)
	}
	if code, _ := call(http.MethodPost, "/reset", ""); code != http.StatusOK {
		t.Errorf("reset = %d", code)
	}
	if _, err := w.GetTopic(w.context(), &pubsubpb.GetTopicRequest{Topic: topicName}); status.Code(err) != codes.NotFound {
		t.Errorf("after the reset: %v", err)
	}
}

// TestLostAnswersOfErrors: only an answer of a success is lost. A caller must not repeat a call that was refused.
func TestLostAnswersOfErrors(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.faults(localpubsub.Fault{Kind: localpubsub.AnswerLost, Method: "Publish"})
	_, err := w.Publish(w.context(), &pubsubpb.PublishRequest{Topic: topicName})
	wantCode(t, err, codes.InvalidArgument)
}

// TestSlowCountsMessages: a large response of a slow stream takes as long as its messages one by one.
func TestSlowCountsMessages(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.publish("", numbered("m", 10)...)
	w.faults(localpubsub.Fault{Kind: localpubsub.Slow, Rate: 20})
	begun := time.Now()
	s := w.stream(0)
	s.receive(10)
	if took := time.Since(begun); took < 500*time.Millisecond {
		t.Errorf("ten messages at 20 a second came within %s", took)
	}
}

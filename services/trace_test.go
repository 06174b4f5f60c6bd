package services_test

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/topics"
)

var update = flag.Bool("update", false, "write the trace of a change into docs/observability.md")

// The trace context of a caller from outside, who asks for a sampled trace.
const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
)

const tracesPage = "../docs/observability.md"

var tracedBlock = regexp.MustCompile("(?s)(<!-- trace: services/trace_test.go -->\n```text\n)(.*?)(```)")

var padding = regexp.MustCompile(`(\S) {2,}`)

// narrowed returns a trace without its columns, whose widths depend on the longest name.
func narrowed(trace string) string { return padding.ReplaceAllString(trace, "$1 ") }

// TestTheTraceOfAChange compares the trace of one PATCH, from the request to the read that
// waited for it, with the one that docs/observability.md shows. The publish is refused once,
// and the event is delivered twice.
func TestTheTraceOfAChange(t *testing.T) {
	t.Parallel()
	spans := traceAChange(t)
	got := describeTraces(t, spans)
	page, err := os.ReadFile(tracesPage)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		page = tracedBlock.ReplaceAll(page, append(append([]byte("${1}"), bytes.ReplaceAll([]byte(got), []byte("$"), []byte("$$"))...), "${3}"...))
		if err := os.WriteFile(tracesPage, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shown := tracedBlock.FindSubmatch(page)
	if shown == nil {
		t.Fatalf("%s has no block %s", tracesPage, tracedBlock)
	}
	if diff := cmp.Diff(narrowed(string(shown[2])), narrowed(got)); diff != "" {
		t.Errorf("trace (-in the docs +exported; write it with -update):\n%s", diff)
	}
	events := map[string]bool{}
	for _, s := range spans {
		if hexOf(s.TraceId) == callersTrace {
			t.Errorf("%s of %s is in the trace of a stranger", s.Name, s.service)
		}
		if s.text("event_type") == "VideoUpdated" {
			events[s.text("event_id")] = true
		}
	}
	if len(events) != 1 {
		t.Errorf("the spans of one event have the ids %v", events)
	}
}

// traceAChange returns the spans of both services, which run as they are deployed.
func traceAChange(t *testing.T) []collected {
	t.Helper()
	w := newWorld(t, startBroker(t, broker.Local))
	c := startCollector(t)
	push := []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + c.endpoint, "OTEL_BSP_SCHEDULE_DELAY=50"}
	video := w.spawn(t, "video", w.videoAddr, append(push, "DATABASE_URL="+w.pg.VideoURL)...)
	catalog := w.spawn(t, "catalog", w.catalogAddr, append(push, "DATABASE_URL="+w.pg.CatalogURL, "VIDEO_SERVICE_ADDR="+w.videoAddr)...)
	video.ready(t)
	catalog.ready(t)
	v := w.create(t, "First cut")
	w.fresh(t, v.ID, v.Token)
	// A PATCH that changes nothing. Afterwards the connection has prepared the statements of the first batch.
	call(t, http.MethodPatch, w.videos("/"+v.ID), nil, fields{"title": "First cut"}).is(t, http.StatusOK, 1)
	w.acknowledgeAll(t, topics.Video+".catalog")
	w.broker.setFaults(t, `{"kind": "reject", "key": "`+v.ID+`", "times": 1}, {"kind": "ack_lost"}`)

	// The reader waits before the change is made: then it is the change that ends its wait.
	read := make(chan answer, 1)
	go func() { read <- w.read(t, v.ID, tokenFor(v.ID, 2), 25) }()
	eventually(t, "a reader waits", func() bool { return waitingGauge.MatchString(metrics(t, w.catalogAddr)) })
	call(t, http.MethodPatch, w.videos("/"+v.ID), http.Header{
		"Traceparent": {"00-" + callersTrace + "-" + callersSpan + "-01"},
	}, fields{"title": "Second cut"}).is(t, http.StatusOK, 2)
	(<-read).is(t, http.StatusOK, 2).from(t, "projection")

	processed := func() (n int) {
		for _, s := range c.all() {
			if strings.HasPrefix(s.Name, "process ") && s.text("event_type") == "VideoUpdated" {
				n++
			}
		}
		return n
	}
	eventually(t, "the event was applied", func() bool { return processed() == 1 })
	w.broker.expireLeases(t)
	eventually(t, "the event came again", func() bool { return processed() == 2 })
	w.broker.setFaults(t, "")
	for _, p := range []*spawned{video, catalog} { // they send their last spans
		if code := p.terminate(t); code != 0 {
			t.Errorf("%s ended with %d", p.cmd.Path, code)
		}
	}
	return c.all()
}

// waitingGauge matches while one reader waits.
var waitingGauge = regexp.MustCompile(`(?m)^consistency_waiters\{.*\} 1$`)

// acknowledgeAll has the broker forget the messages up to now, whether or not their
// acknowledgements have arrived.
func (w *world) acknowledgeAll(t testing.TB, subscription string) {
	t.Helper()
	_, err := w.broker.subscriber.Seek(t.Context(), &pubsubpb.SeekRequest{
		Subscription: "projects/" + w.project + "/subscriptions/" + subscription,
		Target:       &pubsubpb.SeekRequest_Time{Time: timestamppb.Now()},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// setFaults sets the faults of the repository's own broker.
func (b *testBroker) setFaults(t testing.TB, faults string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+b.addr+"/control/faults",
		strings.NewReader(`{"faults": [`+faults+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		t.Fatalf("set faults of the broker: %s", res.Status)
	}
}

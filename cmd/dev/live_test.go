package main_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"example.com/lockstep/internal/live"
)

// showsTheLivePage presses a button of the page, and then interrupts another action while
// it has broken something.
func showsTheLivePage(t *testing.T) {
	l := command(t, nil, "--pubsub", "local")
	l.serving(t)
	url := l.livePage(t)
	frames := openFrames(t, url)
	push(t, url, "write")
	f := frames.await(t, "write is over", func(f live.Frame) bool { return result(f, "write") != live.Running && result(f, "write") != "" })
	if result(f, "write") != live.Held || !slices.ContainsFunc(f.Seen, func(s live.Seen) bool { return s.ID == "P8" }) {
		t.Errorf("outcomes %+v, seen %+v", f.Outcomes, f.Seen)
	}
	frames.await(t, "every part is up, and the events are shown as applied", func(f live.Frame) bool {
		return len(f.Parts) == 4 && !slices.ContainsFunc(f.Parts, func(p live.Part) bool { return p.State != "up" }) &&
			len(f.Events) > 2 && f.Events[0].State == "applied"
	})
	push(t, url, "postgres-outage")
	frames.await(t, "Postgres is away", func(f live.Frame) bool { return strings.Contains(said(f, "postgres-outage"), "Postgres") })
	l.signal(t, os.Interrupt)
	if code := l.wait(t); code != 0 {
		t.Errorf("exit code %d, stderr:\n%s", code, l.stderr.String())
	}
}

// leavesNoFaultInABroker interrupts an action while it has set a fault in a broker that goes
// on. The page as such changes nothing in it.
func leavesNoFaultInABroker(t *testing.T) {
	broker, _ := servePubSub(t)
	const latency = `{"kind":"latency","delay":"1ms"}`
	faults(t, broker, http.MethodPut, `{"faults":[`+latency+`]}`)
	l := command(t, []string{"PUBSUB_EMULATOR_HOST=" + broker})
	l.serving(t)
	url := l.livePage(t)
	frames := openFrames(t, url)
	if got := faults(t, broker, http.MethodGet, ""); !strings.Contains(got, latency) {
		t.Errorf("the page has changed the broker's faults to %s", got)
	}
	push(t, url, "broker-outage")
	frames.await(t, "the outage", func(f live.Frame) bool { return strings.Contains(said(f, "broker-outage"), "answers nothing") })
	l.signal(t, os.Interrupt)
	if code := l.wait(t); code != 0 {
		t.Errorf("exit code %d, stderr:\n%s", code, l.stderr.String())
	}
	if got := faults(t, broker, http.MethodGet, ""); strings.Contains(got, "kind") {
		t.Errorf("the broker is left with %s", got)
	}
}

// faults sets or gets those of a broker.
func faults(t *testing.T, broker, method, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+broker+"/control/faults", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s (%v)", response.Status, err)
	}
	return string(text)
}

// livePage is the address of the page that the launch prints.
func (l *launch) livePage(t *testing.T) (url string) {
	t.Helper()
	for line := ""; line != "Serving until Ctrl-C."; line = l.line(t) {
		if rest, found := strings.CutPrefix(line, "live "); found {
			url = strings.Fields(rest)[0]
		}
	}
	if url == "" {
		t.Fatal("no address of the page is printed")
	}
	return url
}

// frames are those of the live page.
type frames struct{ lines *bufio.Scanner }

func openFrames(t *testing.T, url string) frames {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/frames", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return frames{lines}
}

// await returns the first frame for which the condition holds.
func (f frames) await(t *testing.T, what string, condition func(live.Frame) bool) live.Frame {
	t.Helper()
	last := ""
	for f.lines.Scan() {
		text, found := strings.CutPrefix(f.lines.Text(), "data: ")
		if !found {
			continue
		}
		var frame live.Frame
		if err := json.Unmarshal([]byte(text), &frame); err != nil {
			t.Fatal(err)
		}
		if condition(frame) {
			return frame
		}
		last = text
	}
	t.Fatalf("%s: the frames have ended with %s", what, last)
	return live.Frame{}
}

func outcome(f live.Frame, name string) live.Outcome {
	for _, o := range f.Outcomes {
		if o.Name == name {
			return o
		}
	}
	return live.Outcome{}
}

func result(f live.Frame, name string) string { return outcome(f, name).Result }
func said(f live.Frame, name string) string   { return outcome(f, name).Said }

func push(t *testing.T, url, button string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/press/"+button, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Lockstep-Press", "1")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		t.Fatalf("press of %s: %s", button, response.Status)
	}
}

package localpubsub_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub"
)

// subscriberMode makes the test binary a subscriber that can be killed. It
// holds back every second message of a key and acknowledges the others.
const subscriberMode = "LOCALPUBSUB_TEST_SUBSCRIBER"

// lease is the shortest lease there is.
const lease = 10 * time.Second

func subscribe() {
	ctx := context.Background()
	client, err := pubsub.NewClient(ctx, "p")
	if err != nil {
		panic(err)
	}
	var stdout sync.Mutex
	subscriber := client.Subscriber(subscriptionName)
	subscriber.ReceiveSettings.MaxDurationPerAckExtension = lease
	err = subscriber.Receive(ctx, func(ctx context.Context, m *pubsub.Message) {
		stdout.Lock()
		fmt.Fprintln(os.Stdout, m.OrderingKey, string(m.Data)) // before the ack: the next moment may be the last
		stdout.Unlock()
		if os.Getenv(subscriberMode) == "holds" && len(m.Data)%2 == 0 {
			<-ctx.Done()
			return
		}
		m.Ack()
	})
	panic(err)
}

// TestKilledSubscribers kills three subscribers that have messages, one after
// the other. A fourth receives all messages that they had not acknowledged, in
// order per key.
func TestKilledSubscribers(t *testing.T) {
	t.Parallel()
	const keys, perKey = 60, 4
	w := newWorld(t, localpubsub.Options{Clock: localpubsub.NewClock()})
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true})
	for n := range perKey {
		for k := range keys {
			w.publish(fmt.Sprint("k", k), strings.Repeat("x", n+1))
		}
	}
	seen := map[string][]string{}
	note := func(line string) {
		key, text, _ := strings.Cut(line, " ")
		seen[key] = append(seen[key], text)
	}
	for range 3 {
		consumer := spawn(t, w.Addr(), "holds")
		for range keys / 3 {
			note(consumer.line(t))
		}
		for _, line := range consumer.kill(t) {
			note(line)
		}
	}
	killed := time.Now()
	last := spawn(t, w.Addr(), "acknowledges")
	for !complete(seen, keys, perKey) {
		note(last.line(t))
	}
	last.kill(t)
	t.Logf("%d messages of %d keys arrived %.1f s after the third kill", keys*perKey, keys, time.Since(killed).Seconds())
	for key, texts := range seen {
		var first []string // the order of the first deliveries
		for _, text := range texts {
			if !slices.Contains(first, text) {
				first = append(first, text)
			}
		}
		if !slices.Equal(first, []string{"x", "xx", "xxx", "xxxx"}) {
			t.Errorf("key %s: first came %q", key, first)
		}
	}
}

func complete(seen map[string][]string, keys, perKey int) bool {
	done := 0
	for _, texts := range seen {
		if slices.ContainsFunc(texts, func(text string) bool { return len(text) == perKey }) {
			done++
		}
	}
	return done == keys
}

// A subscriber is another process.
type subscriber struct {
	command *exec.Cmd
	lines   chan string
}

func spawn(t *testing.T, addr, mode string) *subscriber {
	t.Helper()
	s := &subscriber{command: exec.Command(os.Args[0]), lines: make(chan string)}
	s.command.Env = append(os.Environ(), subscriberMode+"="+mode, "PUBSUB_EMULATOR_HOST="+addr)
	s.command.Stderr = t.Output()
	out, err := s.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			s.lines <- scanner.Text()
		}
	}()
	t.Cleanup(func() { _ = s.command.Process.Kill() }) // it may be dead already
	return s
}

func (s *subscriber) line(t *testing.T) string {
	t.Helper()
	select {
	case line, ok := <-s.lines:
		if ok {
			return line
		}
		t.Fatal("the subscriber has ended")
	case <-time.After(patience):
		t.Fatal("nothing more arrives")
	}
	return ""
}

// kill ends it without a warning, and returns the rest of its output.
func (s *subscriber) kill(t *testing.T) (rest []string) {
	t.Helper()
	if err := s.command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for line := range s.lines {
		rest = append(rest, line)
	}
	_ = s.command.Wait() // it was killed
	return rest
}

package inbox

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/localpubsub"
)

// streamsForTest has streams without a consumer.
func streamsForTest(t *testing.T) *openStreams {
	t.Helper()
	s := NewStreams()
	leave, err := s.enter("s", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(leave)
	return s.of("s")
}

// The broker and widen end streams at any time. The client opens the next one soon after that.
func TestAGapBetweenStreamsIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := streamsForTest(t)
		shown := func(when string, want bool) {
			t.Helper()
			if p.isAway() != want {
				t.Errorf("%s: away is %t", when, !want)
			}
		}
		later := func() { time.Sleep(2 * awayTime) } //nolint:forbidigo // of the virtual clock: it takes no time
		shown("at the start", false)
		later()
		shown("never opened", true)
		stream, end := context.WithCancel(t.Context())
		p.add(&openStream{ctx: stream})
		shown("just opened", true)
		later()
		shown("open for long", false)
		end()
		synctest.Wait()
		shown("just ended", false)
		later()
		shown("ended", true)

		stream, end = context.WithCancel(t.Context())
		brings := &openStream{ctx: stream}
		p.add(brings)
		brings.served.Store(true)
		shown("has brought a message", false)
		end()
		synctest.Wait()
		shown("ended after a message", false)
	})
}

// A broker that is out ends each stream as soon as the client has opened it. Such a stream is no stream.
func TestStreamsThatEndAtOnceAreAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := streamsForTest(t)
		for range 100 {
			stream, end := context.WithCancel(t.Context())
			p.add(&openStream{ctx: stream})
			end()
			time.Sleep(worksTime / 2) //nolint:forbidigo // of the virtual clock: it takes no time
		}
		if !p.isAway() {
			t.Error("the broker is not away")
		}
	})
}

// refusedStream is a stream that the broker has ended without an answer.
type refusedStream struct {
	grpc.ClientStream

	after time.Duration
}

func (r refusedStream) Header() (metadata.MD, error) {
	time.Sleep(r.after) //nolint:forbidigo // of the virtual clock: it takes no time
	return nil, nil
}

// The client may have opened a stream for a request, and read from it half a minute later. Until then the client does
// not notice that the broker has refused the stream.
func TestARefusedStreamThatIsNotReadIsAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := streamsForTest(t)
		stream, end := context.WithCancel(t.Context())
		defer end()
		one := &openStream{ClientStream: refusedStream{}, ctx: stream}
		p.add(one)
		one.awaitAnswer()
		time.Sleep(2 * awayTime) //nolint:forbidigo // of the virtual clock: it takes no time
		if !p.isAway() {
			t.Error("the broker is not away")
		}
	})
}

// A stream that has brought nothing for long has worked until its end.
func TestAnIdleStreamThatEndsHasWorked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := streamsForTest(t)
		stream, end := context.WithCancel(t.Context())
		one := &openStream{ClientStream: refusedStream{after: time.Hour}, ctx: stream}
		p.add(one)
		one.awaitAnswer()
		end()
		synctest.Wait()
		if away, _ := p.away(); away > 0 {
			t.Errorf("away for %s", away)
		}
	})
}

// TestABrokerThatIsOutIsSaid: the client returns no error while the broker is out, so nothing else would show that no
// event arrives.
func TestABrokerThatIsOutIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	w.publishRaw(t, event("a", 1).Message())
	w.eventually(t, 1, withDone)
	if got := w.c.metrics.pullFailures(); got != 0 {
		t.Errorf("%d pulls in a row have failed before the outage", got)
	}
	if err := w.server.SetFaults(1, localpubsub.Fault{Kind: localpubsub.Outage, Method: "StreamingPull"}); err != nil {
		t.Fatal(err)
	}
	pgtest.Until(t, "the pull has failed", func() bool { return w.c.metrics.pullFailures() > 0 && w.c.FailuresInARow() > 0 })
	if err := w.server.SetFaults(1); err != nil {
		t.Fatal(err)
	}
	pgtest.Until(t, "the pull works", func() bool { return w.c.metrics.pullFailures() == 0 })
}

func TestTheLogSaysThatNoStreamWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := streamsForTest(t)
		c := &Consumer{log: slog.New(slog.NewTextHandler(&out, nil))}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.watchStreams(ctx, p)
		}()
		p.failed(status.Error(codes.Unavailable, "the broker is out"))
		time.Sleep(150 * time.Second) //nolint:forbidigo // of the virtual clock: it takes no time
		stream, end := context.WithCancel(t.Context())
		p.add(&openStream{ctx: stream})
		time.Sleep(time.Minute) //nolint:forbidigo // likewise
		stop()
		<-ended
		end()
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 4 || strings.Count(out.String(), "the broker is out") != 3 || !strings.Contains(lines[3], "works again") {
			t.Errorf("the log has\n%s\nwant a warning in each of three minutes, and the end", out.String())
		}
	})
}

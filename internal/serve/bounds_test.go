package serve_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		gaveUp := make(chan error, 1)
		s.rest.Get("/big", func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					gaveUp <- err
					return
				}
			}
		})
		d := s.startInBubble(t)
		conn := d.connect(t)
		started := time.Now()
		if _, err := io.WriteString(conn, "GET /big HTTP/1.1\r\nHost: test\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		err := <-gaveUp
		if took := time.Since(started); took != 35*time.Second {
			t.Errorf("the handler could write for %s until %v, want 35s", took, err)
		}
		d.end(t)
	})
}

// The client's window stays at 0: it gets headers and no body.
func TestACallerThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		echo(func(context.Context, string) (string, error) { return "not read", nil }).register(s.grpc)
		d := s.startInBubble(t)
		conn := d.connect(t)
		framer := handshake(t, conn, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		started := time.Now()
		request(t, framer, 1, []hpack.HeaderField{
			{Name: ":method", Value: "POST"}, {Name: ":path", Value: "/test.Echo/Say"},
			{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		})
		go func() {
			time.Sleep(time.Minute) // in fake time: only the drain ends it
			d.drain()
		}()
		if got := readTo(t, framer, never); !got.answered[1] || got.reset.Sub(started) != 35*time.Second {
			t.Errorf("answered: %t, stream reset after %s, want 35s", got.answered[1], got.reset.Sub(started))
		}
		d.wait(t)
	})
}

func TestCallersDeadlineIsLimited(t *testing.T) {
	t.Parallel()
	conn := startEcho(t, io.Discard, func(ctx context.Context, _ string) (string, error) {
		deadline, _ := ctx.Deadline()
		return time.Until(deadline).Truncate(time.Minute).String(), nil
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Hour)
	defer cancel()
	if left, err := say(ctx, conn, ""); err != nil || left != "0s" {
		t.Errorf("a call with an hour of time has %s, %v; want less than a minute", left, err)
	}
}

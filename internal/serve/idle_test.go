package serve_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// rawHTTP is a connection on which a test writes HTTP/1 itself.
type rawHTTP struct {
	net.Conn
	answers *bufio.Reader
}

func (d *drained) raw(t *testing.T, text string) *rawHTTP {
	t.Helper()
	conn := d.connect(t)
	c := &rawHTTP{conn, bufio.NewReader(conn)}
	c.send(t, text)
	return c
}

func (c *rawHTTP) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// status reads an answer and returns its status.
func (c *rawHTTP) status(t *testing.T) int {
	t.Helper()
	res, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	readAll(t, res)
	return res.StatusCode
}

func (c *rawHTTP) isClosed(t *testing.T) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Nanosecond)); err != nil {
		t.Fatal(err)
	}
	_, err := c.answers.Peek(1)
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	return errors.Is(err, io.EOF)
}

const hello = "GET /hello HTTP/1.1\r\nHost: test\r\n\r\n"

// 2,000 connections may be without a request. A further one takes the place of the one that was used the longest time ago.
func TestIdleConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"silent":                      "",
		"headers without their end":   "GET /hello HTTP/1.1\r\nHost: te",
		"HTTP/2 without a request":    http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"HTTP/2, headers without end": http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newService(io.Discard)
				s.rest.Get("/hello", func(http.ResponseWriter, *http.Request) {})
				release := make(chan struct{})
				s.rest.Get("/slow", func(http.ResponseWriter, *http.Request) { <-release })
				d := s.startWithBuffers(t, 1<<10)
				busy := d.raw(t, "GET /slow HTTP/1.1\r\nHost: test\r\n\r\n")
				unused := d.raw(t, "")
				synctest.Wait()
				mine := d.raw(t, hello)
				if mine.status(t) != 200 {
					t.Error("the first request failed")
				}
				synctest.Wait()
				for range 1998 {
					d.raw(t, text)
					synctest.Wait()
				}
				if mine.isClosed(t) {
					t.Error("the connection is closed next to 1,999 others")
				}
				further := d.raw(t, "")
				synctest.Wait()
				if unused.isClosed(t) {
					t.Error("a connection without its first request is closed before one that was used")
				}
				if !mine.isClosed(t) {
					t.Error("the oldest of 2,001 connections is open")
				}
				further.send(t, hello)
				close(release)
				if further.status(t) != 200 || busy.status(t) != 200 {
					t.Error("a request next to them failed")
				}
				d.end(t)
			})
		})
	}
}

// A stranger opens more and more connections that say nothing. They take the places of each other, and none of a caller.
func TestSilentConnectionsTakeNoneOfACaller(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"HTTP/1": "",
		"HTTP/2": http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newService(io.Discard)
				s.rest.Get("/hello", func(http.ResponseWriter, *http.Request) {})
				d := s.startWithBuffers(t, 1<<10)
				mine, theirs := d.raw(t, hello), d.unreading(t)
				if mine.status(t) != 200 {
					t.Error("the first request failed")
				}
				theirs.send(t, "/hello")
				if answered, _ := theirs.read(t, 1); answered != 1 {
					t.Error("the first request over HTTP/2 failed")
				}
				for range 10 {
					for range 1000 {
						d.raw(t, text)
					}
					time.Sleep(2 * time.Second) // in fake time
				}
				mine.send(t, hello)
				if mine.status(t) != 200 {
					t.Error("a request after 10,000 silent connections failed")
				}
				theirs.send(t, "/hello")
				if answered, _ := theirs.read(t, 1); answered != 1 {
					t.Error("a request over HTTP/2 after them failed")
				}
				d.end(t)
			})
		})
	}
}

// An answer that needs no body does not wait for a slow one, whose headers would stay in memory.
func TestTheRestOfABodyIsBounded(t *testing.T) {
	t.Parallel()
	const fixed = "POST /nothing HTTP/1.1\r\nHost: test\r\nContent-Length: 20\r\n\r\n0123456789"
	for name, test := range map[string]struct {
		head, rest string
		after      time.Duration
		kept       bool
	}{
		"it does not come":         {fixed, "", 0, false},
		"it comes soon":            {fixed, "0123456789", 900 * time.Millisecond, true},
		"it comes late":            {fixed, "0123456789", 1100 * time.Millisecond, false},
		"chunks without their end": {"POST /nothing HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newService(io.Discard)
				s.rest.Get("/hello", func(http.ResponseWriter, *http.Request) {})
				d := s.startInBubble(t)
				started := time.Now()
				c := d.raw(t, test.head)
				if test.rest != "" {
					go func() {
						time.Sleep(test.after) // in fake time
						_, _ = io.WriteString(c, test.rest)
					}()
				}
				if got := c.status(t); got != 404 {
					t.Errorf("status %d, want 404", got)
				}
				if took := time.Since(started); took > time.Second {
					t.Errorf("the answer came after %s, want a second at most", took)
				}
				time.Sleep(2 * time.Second) // in fake time: longer than net/http waits before it closes
				if closed := c.isClosed(t); closed == test.kept {
					t.Errorf("closed: %t", closed)
				} else if test.kept {
					c.send(t, hello)
					if got := c.status(t); got != 200 {
						t.Errorf("the next request: %d", got)
					}
				}
				d.end(t)
			})
		})
	}
}

// Net/http waits for the rest of a body before it sends the first part of a long answer, too. Meanwhile each answer to a
// stranger keeps its place, and there are 50 for the probes.
func TestALongAnswerDoesNotWaitForABody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		s.rest.Get("/long", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("a", 10_000)) })
		d := s.startInBubble(t)
		const unfinished = " HTTP/1.1\r\nHost: test\r\nContent-Length: 20\r\n\r\n0123456789"
		started := time.Now()
		long := d.raw(t, "GET /long"+unfinished)
		for range 50 {
			d.raw(t, "GET /metrics"+unfinished)
		}
		if got := long.status(t); got != 200 {
			t.Errorf("status %d, want 200", got)
		}
		if took := time.Since(started); took > time.Second {
			t.Errorf("the answer came after %s, want a second at most", took)
		}
		synctest.Wait()
		if got := d.raw(t, "GET /healthz HTTP/1.1\r\nHost: test\r\n\r\n").status(t); got != 200 {
			t.Errorf("the probe has the status %d", got)
		}
		time.Sleep(2 * time.Second) // in fake time: longer than net/http waits before it closes
		d.end(t)
	})
}

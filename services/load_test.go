package services_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/backoff"
)

// retries is the pause before a client tries the next instance.
var retries = backoff.Policy{Base: 10 * time.Millisecond, Cap: 200 * time.Millisecond}

// client is a load balancer in front of several instances of one service: a request
// without an answer goes to the next one, with the same Idempotency-Key. An answer is
// never retried, not even an error.
type client struct {
	http  http.Client
	addrs []string
}

func newClient(t testing.TB, addrs ...string) *client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{addrs: addrs, http: http.Client{Transport: transport, Timeout: 30 * time.Second}}
}

// once makes a single attempt at one instance.
func (c *client) once(ctx context.Context, addr, method, path, key string, body fields) (answer, error) {
	header := http.Header{}
	if key != "" {
		header.Set("Idempotency-Key", key)
	}
	return request(ctx, &c.http, method, "http://"+addr+path, header, body)
}

// do returns an error only when ctx ends before any instance has answered.
func (c *client) do(ctx context.Context, method, path, key string, body fields) (a answer, err error) {
	first := rand.IntN(len(c.addrs))
	for attempt := 0; ; attempt++ {
		a, err = c.once(ctx, c.addrs[(first+attempt)%len(c.addrs)], method, path, key, body)
		if err == nil || !backoff.Sleep(ctx, retries.Delay(attempt+1), nil) {
			return a, err
		}
	}
}

// create makes n videos and returns their ids.
func (c *client) create(t testing.TB, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		a, err := c.do(t.Context(), http.MethodPost, "/v1/videos", uuid.NewString(), fields{"uploader_id": uploader, "title": "0"})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = a.is(t, http.StatusCreated, 1).ID
	}
	return ids
}

// writers is how many clients write at once: more than the four connections of
// an instance's pool.
const writers = 12

// write starts the writers. Each takes a video's id at a time and gives the
// video a new title. On a busy machine the writers before it may hold the video for
// longer than a request waits: the answer is then that nothing was changed, and when to
// come again. The function it returns waits until they have taken all.
func (c *client) write(t testing.TB, ids <-chan string) (wait func()) {
	t.Helper()
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for id := range ids {
				key := uuid.NewString()
				patch := func() (answer, error) {
					return c.do(t.Context(), http.MethodPatch, "/v1/videos/"+id, key, fields{"title": key})
				}
				a, err := patch()
				for (a.Reason == "LOCKED" || a.Reason == "BUSY") && backoff.Sleep(t.Context(), glance, nil) {
					a, err = patch()
				}
				if err != nil || a.code != http.StatusOK {
					t.Errorf("update of %s: %d %s, %v", id, a.code, a.Reason, err)
				}
			}
		})
	}
	return running.Wait
}

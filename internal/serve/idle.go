package serve

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// maxIdle bounds the connections that have no request under way: those that are idle, and those whose next request has not
// arrived with all its headers. A stranger may open any number of them and keep each for idleTimeout, with up to 75 KB of
// buffers, stacks and unfinished headers. All together have 150 MB. Cloud Run sends an instance at most 1,000 requests at once,
// so its front ends need no more than 1,000 connections.
const maxIdle = 2000

// firstTime is how long a new connection may be without a request before it counts as silent. If many clients connect at
// once, their first requests are on the way for that long.
const firstTime = time.Second

// idle has the connections without a request under way.
type idle struct {
	mu sync.Mutex
	// unused have had no request yet, and used are the others, the oldest first.
	unused, used *list.List // of *connection
	open         map[net.Conn]*connection
}

// connection is an open one. While it is in one of the lists, since is its time of arrival there.
type connection struct {
	net.Conn

	requested atomic.Bool // a request has reached the handler
	in        *list.List
	at        *list.Element
	since     time.Time
}

type idleKey struct{}

func newIdle() *idle {
	return &idle{unused: list.New(), used: list.New(), open: map[net.Conn]*connection{}}
}

// bound gives server the bound. [http.Server.Serve] calls ConnContext before the first ConnState.
func (i *idle) bound(server *http.Server) {
	server.ConnState = i.state
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		opened := &connection{Conn: c}
		i.mu.Lock()
		defer i.mu.Unlock()
		i.open[c] = opened
		return context.WithValue(ctx, idleKey{}, opened)
	}
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(idleKey{}).(*connection); ok {
			c.requested.Store(true)
		}
		next.ServeHTTP(w, r)
	})
}

// state is the ConnState of [http.Server]. A new connection is never refused, so that strangers cannot keep callers out. If
// there are more than maxIdle connections without a request, state closes one of them.
func (i *idle) state(conn net.Conn, now http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.open[conn]
	i.remove(c)
	switch now {
	case http.StateNew, http.StateIdle: // over HTTP/2 a connection is idle from its settings on
		i.add(c)
	case http.StateActive:
		return
	case http.StateHijacked, http.StateClosed:
		delete(i.open, conn)
		return
	}
	if i.unused.Len()+i.used.Len() > maxIdle {
		oldest := i.oldest()
		i.remove(oldest)
		_ = oldest.Close() // fails only if the client has hung up already
	}
}

func (i *idle) add(c *connection) {
	c.in, c.since = i.unused, time.Now()
	if c.requested.Load() {
		c.in = i.used
	}
	c.at = c.in.PushBack(c)
}

func (i *idle) remove(c *connection) {
	if c.in != nil {
		c.in.Remove(c.at)
		c.in = nil
	}
}

// oldest returns the connection to close: the oldest silent one. So a stranger who opens fewer than maxIdle connections in
// firstTime takes none away from callers. If none is silent, it is the one that was used the longest time ago. Its client may
// find it closed, as after idleTimeout, and opens another one. Without such a connection it is the oldest new one, whose
// request may be on its way.
func (i *idle) oldest() *connection {
	unused, used := i.unused.Front(), i.used.Front()
	switch {
	case used == nil:
		return unused.Value.(*connection)
	case unused != nil && time.Since(unused.Value.(*connection).since) > firstTime:
		return unused.Value.(*connection)
	}
	return used.Value.(*connection)
}

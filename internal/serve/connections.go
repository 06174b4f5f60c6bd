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

// unreadTimeout bounds the wait for the first requests of connections that were accepted before the
// listener closed. They have arrived or are on their way, unless the client sends none.
const unreadTimeout = time.Second

// connections has the open connections of a server.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]*connection
	// unused and used have the connections without a request under way, the oldest first. unused have had no request yet.
	unused, used *list.List // of *connection
	// unread counts the connections whose first request has not reached the handler. If [http.Server.Shutdown]
	// begins before net/http has read such a request, net/http reads the request, notices the shutdown and
	// closes the connection without an answer.
	unread  int
	left    chan struct{} // has a token after unread has become smaller
	leaving bool          // the drain has begun
}

// connection is an open one. While it is in one of the lists, since is its time of arrival there.
type connection struct {
	net.Conn

	late      bool        // it was accepted while draining
	requested atomic.Bool // a request has reached the handler
	unread    bool        // a late one over HTTP/2 is so until its end: a further request may be on its way
	http2     bool        // it is unread over HTTP/2, and ends by a GOAWAY
	in        *list.List
	at        *list.Element
	since     time.Time
}

type connectionKey struct{}

// connectionOf returns nil for a request without a server, as in a test.
func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connectionKey{}).(*connection)
	return c
}

func newConnections() *connections {
	return &connections{open: map[net.Conn]*connection{}, unused: list.New(), used: list.New(), left: make(chan struct{}, 1)}
}

// of makes all the connections those of server. [http.Server.Serve] calls ConnContext before the first ConnState.
func (s *connections) of(server *http.Server) {
	server.ConnState = s.state
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		s.mu.Lock()
		defer s.mu.Unlock()
		opened := &connection{Conn: c, late: s.leaving}
		s.open[c] = opened
		return context.WithValue(ctx, connectionKey{}, opened)
	}
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connectionOf(r); c != nil && c.requested.CompareAndSwap(false, true) && (!c.late || r.ProtoMajor != 2) {
			s.mu.Lock()
			s.read(c)
			s.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

// state is the ConnState of [http.Server]. A new connection is never refused, so that strangers cannot keep callers out. If
// there are more than maxIdle connections without a request, state closes one of them.
func (s *connections) state(conn net.Conn, now http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open[conn]
	s.remove(c)
	switch now {
	case http.StateNew:
		c.unread = true
		s.unread++
		s.add(c)
	case http.StateIdle:
		// Over HTTP/2 a connection is idle from its settings on, before its first request. One that is not late has a
		// GOAWAY since the begin of the drain.
		if c.http2 = c.late; !c.late {
			s.read(c)
		}
		s.add(c)
	case http.StateActive: // the request was read, but net/http has not yet checked for a shutdown
		return
	case http.StateHijacked, http.StateClosed:
		s.read(c)
		delete(s.open, conn)
		return
	}
	if s.unused.Len()+s.used.Len() > maxIdle {
		oldest := s.oldest()
		s.remove(oldest)
		_ = oldest.Close() // fails only if the client has hung up already
	}
}

// leave sends a goAway on each connection of HTTP/2 that has had none, also on those without a request.
func (s *connections) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	for conn := range s.open {
		go conn.(*framed).leave() //nolint:forcetypeassert // serve accepts no others
	}
}

// read notes that nothing will be lost any more if a shutdown begins before the first request of c is read.
func (s *connections) read(c *connection) {
	if !c.unread {
		return
	}
	c.unread = false
	s.unread--
	select {
	case s.left <- struct{}{}:
	default:
	}
}

func (s *connections) add(c *connection) {
	c.in, c.since = s.unused, time.Now()
	if c.requested.Load() {
		c.in = s.used
	}
	c.at = c.in.PushBack(c)
}

func (s *connections) remove(c *connection) {
	if c.in != nil {
		c.in.Remove(c.at)
		c.in = nil
	}
}

// oldest returns the connection to close: the oldest silent one. So a stranger who opens fewer than maxIdle connections in
// firstTime takes none away from callers. If none is silent, it is the one that was used the longest time ago. Its client may
// find it closed, as after idleTimeout, and opens another one. Without such a connection it is the oldest new one, whose
// request may be on its way.
func (s *connections) oldest() *connection {
	unused, used := s.unused.Front(), s.used.Front()
	switch {
	case used == nil:
		return unused.Value.(*connection)
	case unused != nil && time.Since(unused.Value.(*connection).since) > firstTime:
		return unused.Value.(*connection)
	}
	return used.Value.(*connection)
}

// awaitFirst returns when all first requests are read. After unreadTimeout it closes the connections without
// one, because a shutdown would wait for them and not answer them. Those of HTTP/2 are left to the shutdown,
// which sends a GOAWAY. It is called once, after the last connection was accepted and leave was called.
func (s *connections) awaitFirst() {
	timeout := time.After(unreadTimeout)
	for !s.allRead() {
		select {
		case <-s.left:
		case <-timeout:
			s.closeUnread()
			return
		}
	}
}

func (s *connections) allRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unread == 0
}

func (s *connections) closeUnread() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn, c := range s.open {
		if c.unread && !c.http2 {
			_ = conn.Close() // fails only if the client has hung up already
		}
	}
}

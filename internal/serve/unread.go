package serve

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// unreadTimeout bounds the wait for first requests: their connections were accepted before the
// listener closed, so they are here or on their way. A client may also send none.
const unreadTimeout = time.Second

// unread has the accepted connections whose first request has not reached the handler.
// [http.Server.Shutdown] closes such a connection after it has read the request, without an
// answer: net/http looks for a shutdown between the two.
type unread struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	left  chan struct{} // has a token after a connection has left
}

func newUnread() *unread {
	return &unread{conns: map[net.Conn]struct{}{}, left: make(chan struct{}, 1)}
}

type connKey struct{}

// connContext is that of [http.Server].
func (u *unread) connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// state is the ConnState of [http.Server]. A connection of HTTP/2 is idle before its first
// request; its end by GOAWAY drops none.
func (u *unread) state(c net.Conn, now http.ConnState) {
	switch now {
	case http.StateNew:
		u.mu.Lock()
		defer u.mu.Unlock()
		u.conns[c] = struct{}{}
	case http.StateIdle, http.StateClosed, http.StateHijacked:
		u.leave(c)
	case http.StateActive: // read, and not yet past net/http's look for a shutdown
	}
}

// reached notes that the connection of r has a request in the handler.
func (u *unread) reached(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		u.leave(c)
	}
}

func (u *unread) leave(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.conns, c)
	select {
	case u.left <- struct{}{}:
	default:
	}
}

// wait returns when there is no such connection, or after unreadTimeout. One caller may wait,
// after the last connection was accepted.
func (u *unread) wait() {
	timeout := time.NewTimer(unreadTimeout)
	defer timeout.Stop()
	for {
		u.mu.Lock()
		n := len(u.conns)
		u.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-u.left:
		case <-timeout.C:
			return
		}
	}
}

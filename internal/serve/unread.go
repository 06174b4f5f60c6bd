package serve

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// unreadTimeout bounds the wait for the first requests of connections that were accepted before the
// listener closed. They have arrived or are on their way, unless the client sends none.
const unreadTimeout = time.Second

// unread has the accepted connections whose first request has not reached the handler. If
// [http.Server.Shutdown] begins before net/http has read such a request, net/http reads the
// request, notices the shutdown and closes the connection without an answer.
type unread struct {
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	left  chan struct{} // has a token after a connection has left
}

func newUnread() *unread {
	return &unread{conns: map[net.Conn]struct{}{}, left: make(chan struct{}, 1)}
}

type connKey struct{}

// connContext is the ConnContext of [http.Server]. It lets reached find the connection of a
// request.
func (u *unread) connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// state is the ConnState of [http.Server]. A connection of HTTP/2 is idle before its first request,
// so state removes it from unread. That is safe, because a connection of HTTP/2 ends by a GOAWAY, after
// which a client sends again the requests that the server has not read.
func (u *unread) state(c net.Conn, now http.ConnState) {
	switch now {
	case http.StateNew:
		u.mu.Lock()
		defer u.mu.Unlock()
		u.conns[c] = struct{}{}
	case http.StateIdle, http.StateClosed, http.StateHijacked:
		u.leave(c)
	case http.StateActive: // the request was read, but net/http has not yet checked for a shutdown
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

// end returns when unread is empty. After unreadTimeout it closes the connections that are left,
// because a shutdown would wait for them and not answer them. It is called once, after the last
// connection was accepted.
func (u *unread) end() {
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
			u.close()
			return
		}
	}
}

func (u *unread) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.conns {
		_ = c.Close() // fails only if the client has hung up already
	}
}

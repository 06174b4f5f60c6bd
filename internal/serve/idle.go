package serve

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// maxIdle bounds the connections that have no request under way: those that are idle, and those whose next request has not
// arrived with all its headers. A stranger may open any number of them and keep each for idleTimeout, with up to 75 KB of
// buffers, stacks and unfinished headers. All together have 150 MB. Cloud Run sends an instance at most 1,000 requests at once,
// so its front ends need no more than 1,000 connections.
const maxIdle = 2000

// idle has the connections without a request under way.
type idle struct {
	mu sync.Mutex
	// unused have had no request yet, and used are the others, the oldest first.
	unused, used *list.List // of net.Conn
	at           map[net.Conn]place
}

// place is the place of a connection in one of the lists.
type place struct {
	in *list.List
	at *list.Element
}

func newIdle() *idle { return &idle{unused: list.New(), used: list.New(), at: map[net.Conn]place{}} }

// state is the ConnState of [http.Server]. A new connection is never refused, so that strangers cannot keep callers out. If
// there are more than maxIdle connections without a request, state closes one of them.
func (i *idle) state(c net.Conn, now http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.remove(c)
	switch now {
	case http.StateNew:
		i.at[c] = place{i.unused, i.unused.PushBack(c)}
	case http.StateIdle:
		i.at[c] = place{i.used, i.used.PushBack(c)}
	case http.StateActive, http.StateHijacked, http.StateClosed:
		return
	}
	if len(i.at) > maxIdle {
		oldest := i.oldest()
		i.remove(oldest)
		_ = oldest.Close() // fails only if the client has hung up already
	}
}

func (i *idle) remove(c net.Conn) {
	if p, ok := i.at[c]; ok {
		p.in.Remove(p.at)
		delete(i.at, c)
	}
}

// oldest returns the connection that was used the longest time ago. Its client may find it closed, as after idleTimeout, and
// opens another one. Without such a connection, oldest returns the oldest that was not used. Its request may be on its way, if
// many clients connect at once.
func (i *idle) oldest() net.Conn {
	from := i.used
	if from.Len() == 0 {
		from = i.unused
	}
	return from.Front().Value.(net.Conn)
}

package serve

import (
	"container/list"
	"net"
	"net/http"
	"sync"
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
	// unused have had no request yet, and used are the others, the oldest first. A connection of HTTP/2 is in used from its
	// settings on, because net/http reports it as idle then.
	unused, used *list.List // of *quiet
	at           map[net.Conn]*quiet
}

// quiet is a connection in one of the lists, since a time.
type quiet struct {
	net.Conn

	in    *list.List
	at    *list.Element
	since time.Time
}

func newIdle() *idle { return &idle{unused: list.New(), used: list.New(), at: map[net.Conn]*quiet{}} }

// state is the ConnState of [http.Server]. A new connection is never refused, so that strangers cannot keep callers out. If
// there are more than maxIdle connections without a request, state closes one of them.
func (i *idle) state(c net.Conn, now http.ConnState) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.remove(c)
	switch now {
	case http.StateNew:
		i.add(c, i.unused)
	case http.StateIdle:
		i.add(c, i.used)
	case http.StateActive, http.StateHijacked, http.StateClosed:
		return
	}
	if len(i.at) > maxIdle {
		oldest := i.oldest()
		i.remove(oldest.Conn)
		_ = oldest.Close() // fails only if the client has hung up already
	}
}

func (i *idle) add(c net.Conn, to *list.List) {
	q := &quiet{Conn: c, in: to, since: time.Now()}
	q.at = to.PushBack(q)
	i.at[c] = q
}

func (i *idle) remove(c net.Conn) {
	if p, ok := i.at[c]; ok {
		p.in.Remove(p.at)
		delete(i.at, c)
	}
}

// oldest returns the connection to close: the oldest silent one. So a stranger who opens fewer than maxIdle connections of
// HTTP/1 in firstTime takes none away from callers. If none is silent, it is the one that was used the longest time ago. Its client may
// find it closed, as after idleTimeout, and opens another one. Without such a connection it is the oldest new one, whose
// request may be on its way.
func (i *idle) oldest() *quiet {
	unused, used := i.unused.Front(), i.used.Front()
	switch {
	case used == nil:
		return unused.Value.(*quiet)
	case unused != nil && time.Since(unused.Value.(*quiet).since) > firstTime:
		return unused.Value.(*quiet)
	}
	return used.Value.(*quiet)
}

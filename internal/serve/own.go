package serve

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"example.com/lockstep/internal/problem"
)

const (
	// ownStreamTime is how long a stream of gRPC's own services may last. The server ends it before Cloud Run
	// does (after 60 s by default), and the client opens the next one.
	ownStreamTime = 55 * time.Second
	// ownCallTime is how long a unary call to gRPC's own services may last, including the arrival of its
	// message. The answer itself takes no time.
	ownCallTime = readHeaderTimeout
	// maxOwn bounds the streams of gRPC's own services (health, reflection) that an instance has at once,
	// and likewise their unary calls. Every caller may make such calls, and each takes one of the requests
	// that Cloud Run gives an instance at once (80 by default). A proxy or a person needs one stream. A
	// unary call ends as soon as its message is there.
	maxOwn = 8
	// maxEnding bounds the calls that were broken off and have not ended yet. They end as soon as the process finds time, but
	// a stranger may send calls faster than that, each with headers of up to maxHeaderBytes.
	maxEnding = 64
)

// own is one kind of calls to gRPC's own services, either the unary calls or the streams. time
// bounds each call.
type own struct {
	time time.Duration

	mu sync.Mutex
	// underWay are the calls, the oldest first. All but the newest maxOwn have been told to end.
	underWay []*ownCall
	// ending counts the calls whose answers were broken off and that have not left yet.
	ending int
}

// ownCall is a call under way. Its context is cancelled by end.
type ownCall struct {
	end context.CancelCauseFunc

	mu sync.Mutex
	w  http.ResponseWriter // is nil after the call has left, because a handler's writer is not valid later
}

// breakOff breaks the answer off. It may wait for the goroutine of the call's connection, which a client can keep busy.
func (c *ownCall) breakOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w != nil {
		boundAnswer(c.w, 0)
	}
}

func (c *ownCall) left() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w = nil
}

// enter adds a call. A new call is not refused while others are under way, so that a stranger with open calls cannot keep
// the health check of a proxy out. If at least maxOwn other calls are under way, enter tells the oldest of those that
// were not told before to end: it ends the context with errReplaced. A call whose client reads nothing waits
// for the client and does not end. So if 2*maxOwn calls have not ended, enter also breaks the answer of the
// oldest off. The handler calls leave before it returns. If maxEnding calls that were broken
// off have not left yet, enter adds no call, and ok is false.
func (o *own) enter(end context.CancelCauseFunc, w http.ResponseWriter) (leave func(), ok bool) {
	call := &ownCall{end: end, w: w}
	oldest, ok := o.add(call)
	if oldest != nil {
		oldest.breakOff() // not under the lock of o, because other calls must not wait for this connection
	}
	return func() { o.leave(call) }, ok
}

// add returns the call that is to be broken off for the new one, if there is one.
func (o *own) add(call *ownCall) (oldest *ownCall, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending == maxEnding {
		return nil, false
	}
	if older := len(o.underWay) - maxOwn; older >= 0 {
		o.underWay[older].end(errReplaced)
	}
	if len(o.underWay) == 2*maxOwn {
		oldest = o.underWay[0]
		o.underWay = slices.Delete(o.underWay, 0, 1)
		o.ending++
	}
	o.underWay = append(o.underWay, call)
	return oldest, true
}

func (o *own) leave(call *ownCall) {
	call.left()
	o.mu.Lock()
	defer o.mu.Unlock()
	if at := slices.Index(o.underWay, call); at >= 0 {
		o.underWay = slices.Delete(o.underWay, at, at+1)
	} else {
		o.ending--
	}
}

var errReplaced = &problem.Error{
	Code: problem.CodeTooMany, Detail: "Newer calls to health or reflection have taken the place of this one.", RetryAfter: time.Minute,
}

// methods returns all registered methods. The value is the kind of call for a method of gRPC's own
// services, and nil for a method of ours.
func (g *GRPC) methods() map[string]*own {
	calls, streams, methods := &own{time: ownCallTime}, &own{time: ownStreamTime}, map[string]*own{}
	for service, info := range g.server.GetServiceInfo() {
		for _, method := range info.Methods {
			name := "/" + service + "/" + method.Name
			switch {
			case !isInfrastructure(name):
				methods[name] = nil
			case method.IsClientStream || method.IsServerStream:
				methods[name] = streams
			default:
				methods[name] = calls
			}
		}
	}
	return methods
}

// isInfrastructure reports whether a method belongs to gRPC's own services (health,
// reflection).
func isInfrastructure(method string) bool { return strings.HasPrefix(method, "/grpc.") }

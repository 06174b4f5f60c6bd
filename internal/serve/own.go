package serve

import (
	"strings"
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
)

// own is one kind of calls to gRPC's own services, either the unary calls or the streams. time
// bounds each call, and places bounds the number of calls under way.
type own struct {
	time   time.Duration
	places chan struct{}
}

func newOwn(limit time.Duration) *own { return &own{limit, make(chan struct{}, maxOwn)} }

// enter takes one of the places in o.places. The caller frees the place with leave. If no place is
// free, enter returns the refusal. For a call to a service of ours, o is nil and the call needs no
// place.
func (o *own) enter() (leave func(), refusal *problem.Error) {
	if o == nil {
		return func() {}, nil
	}
	select {
	case o.places <- struct{}{}:
		return func() { <-o.places }, nil
	default:
		return func() {}, errManyOwn
	}
}

var errManyOwn = &problem.Error{
	Code: problem.CodeTooMany, Detail: "Too many calls to health or reflection are under way.", RetryAfter: time.Minute,
}

// methods returns all registered methods. The value is the kind of call for a method of gRPC's own
// services, and nil for a method of ours.
func (g *GRPC) methods() map[string]*own {
	calls, streams, methods := newOwn(ownCallTime), newOwn(ownStreamTime), map[string]*own{}
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

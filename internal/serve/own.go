package serve

import (
	"strings"
	"time"

	"example.com/lockstep/internal/problem"
)

const (
	// ownStreamTime is how long a stream of gRPC's own services may last. It is
	// below the 60 s after which Cloud Run ends a request by default, so that the server
	// ends the stream and not the platform, and the client opens the next one.
	ownStreamTime = 55 * time.Second
	// ownCallTime is that of a unary call, in which its message must come. It is as long as
	// the headers of a request may take: the answer itself takes no time.
	ownCallTime = readHeaderTimeout
	// maxOwn is how many streams of gRPC's own services (health, reflection) an instance
	// has at once, and how many unary calls. Every caller may make them, and each takes one
	// of the requests that Cloud Run gives an instance at once (80 by default). Of streams a
	// proxy or a person needs one; a call whose message is there ends at once.
	maxOwn = 8
)

// own is a kind of the calls to gRPC's own services.
type own struct {
	time   time.Duration
	places chan struct{}
}

func newOwn(limit time.Duration) *own { return &own{limit, make(chan struct{}, maxOwn)} }

// enter takes a place until leave is called. A call to a service of ours, for which o is
// nil, needs none.
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

// methods are all methods that are registered, with the kind of those of gRPC's own services.
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

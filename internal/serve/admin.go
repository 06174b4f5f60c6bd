package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// adminServer serves health, readiness and metrics with the bounds of the other port. It
// has no gRPC: gRPC health stays on the port of the API, because a gRPC client checks
// the connection that carries its calls.
func (s *Server) adminServer() *http.Server {
	router := newRouter(s.log)
	s.health.mount(router)
	if s.health.Page == nil {
		return s.httpServer(router)
	}
	// The router's bounds are for requests that end; a page's stream does not.
	mux := http.NewServeMux()
	mux.Handle("/live/", http.StripPrefix("/live", s.health.Page))
	mux.Handle("/", router)
	return s.httpServer(mux)
}

// serveAdmin returns when ctx ends, and leaves the server running: a probe during the drain
// gets its 503 until Run closes the server.
func serveAdmin(ctx context.Context, server *http.Server, lis net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	if err := waitOr(ctx.Done(), served); err != nil {
		return fmt.Errorf("serve health on %s: %w", lis.Addr(), err)
	}
	return nil
}

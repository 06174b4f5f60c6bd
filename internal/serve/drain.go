package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// announceDrain tells the client of r, while draining, to open its next connection elsewhere. net/http
// sends the header as a GOAWAY if the connection is HTTP/2.
//
// A GOAWAY drops the calls that the server has not read yet. gRPC's clients send such a call again by
// themselves, but only once. The balancer of a client may choose this instance for the new connection, too.
// If the new connection also got a GOAWAY with its first answer, the calls that are sent again would be
// dropped a second time, and fail. So a connection of HTTP/2 that was accepted while draining gets its GOAWAY
// from shutdown, after the listener has closed.
func (s *Server) announceDrain(w http.ResponseWriter, r *http.Request) {
	c := connectionOf(r)
	if !s.health.draining.Load() || r.ProtoMajor == 2 && c != nil && c.late {
		return
	}
	w.Header().Set("Connection", "close")
}

func waitOr(done <-chan struct{}, failed <-chan error) error {
	select {
	case <-done:
		return nil
	case err := <-failed:
		return err
	}
}

// shutdown waits for the requests in flight. It returns an error that names the requests that are
// cut off. The caller closes the connections of these requests.
func (s *Server) shutdown(server *http.Server, conns *connections) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	conns.awaitFirst()
	if err := server.Shutdown(ctx); err == nil {
		return nil
	}
	cut := s.inFlight.names(s.rest)
	if len(cut) == 0 {
		return nil
	}
	return fmt.Errorf("drain: cut off after %s: %s", shutdownTimeout, strings.Join(cut, ", "))
}

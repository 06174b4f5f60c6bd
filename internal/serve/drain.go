package serve

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// announceDrain tells the client of r, while draining, to open its next connection elsewhere. Over HTTP/2, leave does. The
// balancer of a client may choose this instance for the next connection, too. If it also got a GOAWAY with its first request, a
// client without another choice would open a connection for nearly each request. Each GOAWAY can fail a request: some
// clients, such as Go's and Node's, do not always send a request again that they have not yet written on the connection.
func (s *Server) announceDrain(w http.ResponseWriter, r *http.Request) {
	if s.health.draining.Load() && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
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

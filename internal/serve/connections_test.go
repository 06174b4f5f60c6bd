package serve

import (
	"net"
	"net/http"
	"testing"
)

// A connection leaves no trace after its end, however it ended.
func TestEndedConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	conns, server := newConnections(), &http.Server{}
	conns.of(server)
	for _, states := range [][]http.ConnState{
		{http.StateNew, http.StateClosed},
		{http.StateNew, http.StateActive, http.StateClosed},
		{http.StateNew, http.StateActive, http.StateIdle, http.StateClosed},
		{http.StateNew, http.StateActive, http.StateHijacked},
	} {
		conn, _ := net.Pipe()
		server.ConnContext(t.Context(), conn)
		for _, state := range states {
			server.ConnState(conn, state)
		}
		if n := len(conns.open) + conns.unused.Len() + conns.used.Len() + conns.unread; n != 0 {
			t.Errorf("%v: %d are left", states, n)
		}
	}
}

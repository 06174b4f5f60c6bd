package auth

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// network dials a server. It can lose its connections, which then stay open and carry nothing more.
type network struct {
	server string
	conns  sync.Map // of *path
}

// path is one connection.
type path struct {
	net.Conn

	lost atomic.Bool
}

func (p *path) Write(b []byte) (int, error) {
	if p.lost.Load() {
		return len(b), nil
	}
	return p.Conn.Write(b)
}

// Read waits for the end of the connection if the network has lost it.
func (p *path) Read(b []byte) (n int, err error) {
	for {
		if n, err = p.Conn.Read(b); err != nil || !p.lost.Load() {
			return n, err
		}
	}
}

func (n *network) dial(ctx context.Context, protocol, _ string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, protocol, n.server)
	if err != nil {
		return nil, err
	}
	p := &path{Conn: conn}
	n.conns.Store(p, nil)
	return p, nil
}

func (n *network) lose() {
	for p := range n.conns.Range {
		p.(*path).lost.Store(true)
	}
}

// HTTP/2 sends the next request on a connection whose last request has timed out. If the network has lost
// the connection, the kernel ends it after about 15 minutes only.
func TestALostConnectionFailsOneFetch(t *testing.T) {
	t.Parallel()
	var address string
	var loses atomic.Bool
	n := &network{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("%s, want HTTP/2", r.Proto)
		}
		if loses.Load() {
			n.lose() // before the answer
		}
		if r.URL.Path == discoveryPath {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":"%s/keys"}`, address, address)
			return
		}
		_, _ = fmt.Fprint(w, `{"keys":[]}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	address, n.server = server.URL, server.Listener.Addr().String()
	transport := server.Client().Transport.(*http.Transport)
	transport.DialContext = n.dial
	s := newSource(address, false)
	s.client.Transport = transport
	for i, limit := range []time.Duration{10 * time.Second, 100 * time.Millisecond, 10 * time.Second} {
		loses.Store(i == 1)
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := s.fetch(ctx)
		cancel()
		if lost := i == 1; lost != (err != nil) {
			t.Errorf("fetch %d: %v", i, err)
		}
	}
}

package broker

import (
	"errors"
	"net"
	"strings"
	"testing"

	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/localpubsub/peer"
)

func TestTakenPortIsNamed(t *testing.T) {
	t.Parallel()
	l := porttest.Listen(t)
	defer l.Close()
	for _, kind := range []Kind{Local, Official} {
		_, err := Start(t.Context(), Options{Kind: kind, Addr: l.Addr().String()})
		if errors.Is(err, peer.ErrNotInstalled) {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("kind %q on a taken port = %v, want an error that names it", kind, err)
		}
	}
}

func TestCloseEndsTheServer(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Local, Official} {
		t.Run(name(kind), func(t *testing.T) {
			t.Parallel()
			s := start(t, Options{Kind: kind})
			select {
			case <-s.Done():
				t.Error("done before Close")
			default:
			}
			for range 2 {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			<-s.Done()
			if conn, err := net.Dial("tcp", s.Addr()); err == nil {
				conn.Close()
				t.Errorf("something still listens at %s", s.Addr())
			}
		})
	}
}

func start(tb testing.TB, opts Options) *Server {
	tb.Helper()
	s, err := Start(tb.Context(), opts)
	if errors.Is(err, peer.ErrNotInstalled) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

func name(kind Kind) string {
	if kind == Local {
		return "local"
	}
	return string(kind)
}

package protocolmux

import (
	"net"
	"os"
	"testing"
	"time"
)

// TestCloseEndsAConnectionThatHasJustCome: the mux closes when it has accepted a silent connection, and has not read from it yet.
// Close does not wait for SniffTime.
func TestCloseEndsAConnectionThatHasJustCome(t *testing.T) {
	t.Parallel()
	m := &Mux{closing: make(chan struct{})}
	close(m.closing)
	routed := make(chan struct{})
	go func() {
		m.route(&silent{past: make(chan struct{})})
		close(routed)
	}()
	select {
	case <-routed:
	case <-time.After(SniffTime / 2):
		t.Error("the connection is still read")
	}
}

// silent is a connection whose client sends nothing.
type silent struct {
	net.Conn
	past     chan struct{} // closed by a deadline in the past
	replaced bool          // a later deadline came after that one
}

// SetReadDeadline lets a deadline in the past come first, if it is on its way.
func (s *silent) SetReadDeadline(at time.Time) error {
	if at.Before(time.Now()) {
		close(s.past)
		return nil
	}
	select {
	case <-s.past:
		s.replaced = true
	case <-time.After(50 * time.Millisecond):
	}
	return nil
}

func (s *silent) Read([]byte) (int, error) {
	if s.replaced {
		<-make(chan struct{}) // until the later deadline, which the test does not wait for
	}
	<-s.past
	return 0, os.ErrDeadlineExceeded
}

func (*silent) Close() error { return nil }

package inbox

import (
	"io"
	"net"
	"sync"
	"testing"

	"example.com/lockstep/internal/porttest"
)

// cable is the way to a server, which can be cut.
type cable struct {
	addr, to string

	mu      sync.Mutex
	severed bool
	open    []net.Conn
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	lis := porttest.Listen(t)
	t.Cleanup(func() { _ = lis.Close() })
	c := &cable{addr: lis.Addr().String(), to: to}
	go func() {
		for {
			from, err := lis.Accept()
			if err != nil {
				return
			}
			c.join(from)
		}
	}()
	return c
}

func (c *cable) join(from net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to, err := net.Dial("tcp", c.to)
	if err != nil || c.severed {
		_ = from.Close()
		return
	}
	c.open = append(c.open, from, to)
	for _, ends := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(ends[0], ends[1])
			_ = ends[0].Close()
		}()
	}
}

func (c *cable) cut(severed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.severed = severed
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

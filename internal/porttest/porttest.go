// Package porttest is test support. It gives free TCP ports on this machine to tests. Some tests
// name a port before a server listens there. Others stop a server and start it again on its port.
//
// Such a test cannot listen on port 0, close the listener and use its port later. The system may
// assign that port to any other connection at any moment. The ports of this package are below the
// range from which the system assigns ports. Two test binaries that run at the same time never get
// the same port.
package porttest

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The ports are in blocks. A process owns a block by the listener that it keeps on the
// block's first port until it ends.
const (
	first  = 20_000
	blocks = 120
	size   = 100
)

var owned struct {
	sync.Mutex
	blocks []net.Listener // kept here, because the finalizer of an unreachable listener closes it
	next   int            // the next port; a multiple of size if there is no block yet or the block is used up
}

// Addr returns an address 127.0.0.1:port on which no process listens. No other test gets the same
// address, in this process or in another process.
func Addr(t testing.TB) string {
	t.Helper()
	owned.Lock()
	defer owned.Unlock()
	for owned.next%size != 0 || ownBlock() {
		port := owned.next
		owned.next++
		if addr := address(port); isFree(addr) {
			return addr
		}
	}
	t.Fatal("other processes own all ports for tests")
	return ""
}

// Listen listens on a port that the system chooses. It leaves Close to the test.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

// Port returns the port of [Addr].
func Port(t testing.TB) int {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	return addr.Port
}

// ownBlock takes the first block that no process owns. This process also keeps its earlier
// blocks, because servers use their ports.
func ownBlock() bool {
	for block := range blocks {
		start := first + block*size
		if lis, err := listen(start); err == nil {
			owned.blocks = append(owned.blocks, lis)
			owned.next = start + 1
			return true
		}
	}
	return false
}

func listen(port int) (net.Listener, error) { return net.Listen("tcp", address(port)) }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// isFree reports whether no process listens at addr. It tries to connect, and does not try to listen: between
// fork and exec, a process that another goroutine starts has a copy of each listener. So the port would stay
// taken for a moment after isFree has closed its listener.
func isFree(addr string) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

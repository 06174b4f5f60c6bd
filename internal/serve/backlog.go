package serve

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// backlog is a listener of connections that were accepted already.
type backlog struct {
	net.Listener
	conns []net.Conn
}

// Accept returns one connection after the other, and then [net.ErrClosed].
func (b *backlog) Accept() (net.Conn, error) {
	if len(b.conns) == 0 {
		return nil, net.ErrClosed
	}
	conn := b.conns[0]
	b.conns = b.conns[1:]
	return conn, nil
}

// closeListener closes lis, and returns the connections that the kernel had in the queue of lis. The
// kernel has told their clients that they are connected. If lis were only closed, the kernel would
// reset them, and a client could not tell whether its request was carried out. closeListener returns
// no connections if lis has no queue in the kernel.
func closeListener(lis net.Listener) (*backlog, error) {
	b := &backlog{Listener: lis}
	if c, ok := lis.(syscall.Conn); ok {
		raw, err := c.SyscallConn()
		if err != nil {
			return b, errors.Join(err, lis.Close())
		}
		var queue []int
		// The goroutine that waits in Accept delays the close of the descriptor until it runs. The shutdown
		// directly behind the last accept refuses the clients that come meanwhile. Only Linux does so.
		err = raw.Control(func(fd uintptr) {
			queue = acceptAll(int(fd))
			_ = syscall.Shutdown(int(fd), syscall.SHUT_RD)
		})
		b.conns = connections(queue)
		if err != nil {
			return b, errors.Join(err, lis.Close())
		}
	}
	if err := lis.Close(); !errors.Is(err, net.ErrClosed) { // the shutdown ends Accept, and its caller may close first
		return b, err
	}
	return b, nil
}

// acceptAll accepts the connections in the queue of the listener fd, which does not block.
func acceptAll(fd int) (queue []int) {
	syscall.ForkLock.RLock() // no child inherits a descriptor before it is marked
	defer syscall.ForkLock.RUnlock()
	for {
		conn, _, err := syscall.Accept(fd)
		switch {
		case err == nil:
			syscall.CloseOnExec(conn)
			queue = append(queue, conn)
		case !errors.Is(err, syscall.EINTR) && !errors.Is(err, syscall.ECONNABORTED):
			return queue
		}
	}
}

// connections takes the descriptors over. A connection whose client has gone meanwhile is left out.
func connections(queue []int) (conns []net.Conn) {
	for _, fd := range queue {
		f := os.NewFile(uintptr(fd), "")
		if conn, err := net.FileConn(f); err == nil { // it has a copy of the descriptor
			conns = append(conns, conn)
		}
		_ = f.Close()
	}
	return conns
}

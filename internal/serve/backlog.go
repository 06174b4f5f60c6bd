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
// no connections if lis has no queue in the kernel. accepted must close when the last call of Accept
// has returned. If another process has the listener, too, it stays open there.
func closeListener(lis net.Listener, accepted <-chan struct{}) (*backlog, error) {
	b := &backlog{Listener: lis}
	queue, queued, err := copyOf(lis)
	if err != nil {
		return b, errors.Join(err, lis.Close())
	}
	err = lis.Close()
	if !queued {
		return b, err
	}
	if err == nil {
		<-accepted // otherwise the descriptor might still be open behind the close below
	}
	conns := acceptAll(queue)
	// This closes the queue directly after the last accept, so that later clients are refused at once.
	// The system call shutdown would close the listener in the other processes, too.
	err = errors.Join(err, syscall.Close(queue))
	b.conns = takeOver(conns)
	return b, err
}

// copyOf returns a copy of the descriptor of lis. ok says that lis has one.
func copyOf(lis net.Listener) (fd int, ok bool, err error) {
	c, ok := lis.(syscall.Conn)
	if !ok {
		return 0, false, nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, false, err
	}
	syscall.ForkLock.RLock() // no child inherits a descriptor before it is marked
	defer syscall.ForkLock.RUnlock()
	var failed error
	err = raw.Control(func(original uintptr) {
		if fd, failed = syscall.Dup(int(original)); failed == nil {
			syscall.CloseOnExec(fd)
			failed = syscall.SetNonblock(fd, true) // os.File.Fd of another process may have changed that for all
		}
	})
	err = errors.Join(err, failed)
	return fd, err == nil, err
}

// acceptAll accepts the connections in the queue of the listener fd, which does not block.
func acceptAll(fd int) (queue []int) {
	syscall.ForkLock.RLock()
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

// takeOver takes the descriptors over. A connection whose client has gone meanwhile is left out.
func takeOver(queue []int) (conns []net.Conn) {
	for _, fd := range queue {
		f := os.NewFile(uintptr(fd), "")
		if conn, err := net.FileConn(f); err == nil { // it has a copy of the descriptor
			conns = append(conns, conn)
		}
		_ = f.Close()
	}
	return conns
}

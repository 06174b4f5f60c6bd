package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

// answerTime bounds a connection attempt to a port of this machine.
const answerTime = time.Second

// listen opens a port that accepts connections from this machine only. With --once it opens any
// free port.
func (p pair) listen(all *parts, service string, port int) (*net.TCPListener, error) {
	taken := fmt.Errorf("port %d for %s is taken: stop what listens there, or use --once, which takes free ports", port, service)
	if p.once {
		port = 0
	} else if answers(port) {
		return nil, taken
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, taken
	}
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", service, err)
	}
	all.atEnd(func() error {
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil // a server that listened on it has closed it
	})
	return l, nil
}

// answers reports whether a server of this machine accepts connections to localhost at port. This
// program could listen at 127.0.0.1 nevertheless if that server has the address ::1 only, and on
// macOS also if it has all addresses. But then a client of localhost might reach that server.
func answers(port int) bool {
	dialer := net.Dialer{Timeout: answerTime}
	for _, host := range []string{"127.0.0.1", "::1"} {
		if conn, err := dialer.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port))); err == nil {
			_ = conn.Close()
			return true
		}
	}
	return false
}

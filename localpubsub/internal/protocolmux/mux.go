// Package protocolmux serves gRPC and plain HTTP on one port. Google's clients use gRPC at
// PUBSUB_EMULATOR_HOST, while Terraform and curl use HTTP/1 at the same address. The first bytes of
// a connection show its protocol. A gRPC connection goes to the server of package grpc, which is
// faster than gRPC through net/http.
package protocolmux

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A Mux accepts connections and passes each to the listener of its protocol.
type Mux struct {
	listener   net.Listener
	grpc, http *listener
	closing    chan struct{}
	done       sync.WaitGroup
}

// SniffTime is the maximum time in which a new connection must show its protocol.
const SniffTime = 10 * time.Second

// preface is the beginning of every HTTP/2 connection from a client (RFC 9113, 3.4). No HTTP/1
// method is called PRI.
const preface = "PRI "

// New starts to accept connections from l. Close closes l.
func New(l net.Listener) *Mux {
	m := &Mux{listener: l, closing: make(chan struct{})}
	m.grpc = &listener{mux: m, connections: make(chan net.Conn)}
	m.http = &listener{mux: m, connections: make(chan net.Conn)}
	m.done.Go(m.accept)
	return m
}

// GRPC is the listener of the gRPC connections.
func (m *Mux) GRPC() net.Listener { return m.grpc }

// HTTP is the listener of all other connections.
func (m *Mux) HTTP() net.Listener { return m.http }

// Addr is the address of the port.
func (m *Mux) Addr() net.Addr { return m.listener.Addr() }

// Close stops listening, and waits until the connections that have not shown
// their protocol yet are closed.
func (m *Mux) Close() error {
	close(m.closing)
	err := m.listener.Close()
	m.done.Wait()
	return err
}

func (m *Mux) accept() {
	for {
		connection, err := m.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select { // for example, there may be no file descriptor until another connection ends
			case <-time.After(10 * time.Millisecond):
				continue
			case <-m.closing:
				return
			}
		}
		m.done.Go(func() { m.route(connection) })
	}
}

func (m *Mux) route(connection net.Conn) {
	// First, because it would replace the deadline with which Close ends the read. It fails on a closed
	// connection, as does the read.
	_ = connection.SetReadDeadline(time.Now().Add(SniffTime))
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-m.closing:
			_ = connection.SetReadDeadline(time.Unix(1, 0)) // ends the read below
		case <-stop:
		}
	}()
	first := make([]byte, len(preface))
	if _, err := io.ReadFull(connection, first); err != nil {
		_ = connection.Close()
		return
	}
	_ = connection.SetReadDeadline(time.Time{})
	to := m.http
	if string(first) == preface {
		to = m.grpc
	}
	select {
	case to.connections <- &sniffed{Conn: connection, first: bytes.NewReader(first)}:
	case <-m.closing:
		_ = connection.Close()
	}
}

// sniffed is a connection whose first bytes were already read. Its reads return these bytes again,
// and then the further bytes.
type sniffed struct {
	net.Conn

	first *bytes.Reader
}

func (s *sniffed) Read(p []byte) (int, error) {
	if s.first.Len() > 0 {
		return s.first.Read(p)
	}
	return s.Conn.Read(p)
}

// A listener accepts the connections of one protocol.
type listener struct {
	mux         *Mux
	connections chan net.Conn
}

// Accept waits for a connection of the protocol.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.mux.closing:
		return nil, net.ErrClosed
	}
}

// Addr is the address of the port.
func (l *listener) Addr() net.Addr { return l.mux.Addr() }

// Close does nothing, because the mux closes both listeners.
func (*listener) Close() error { return nil }

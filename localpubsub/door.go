package localpubsub

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A door accepts gRPC and plain HTTP on one port: Google's clients speak gRPC
// to PUBSUB_EMULATOR_HOST, Terraform and curl speak HTTP/1 to the same address.
// The first bytes of a connection show its protocol. A gRPC connection then
// goes to gRPC's own server, which is faster than serving gRPC through
// net/http.
type door struct {
	net.Listener

	grpc, http *side
	closing    chan struct{}
	done       sync.WaitGroup
}

// sniffTime bounds how long a new connection may stay silent.
const sniffTime = 10 * time.Second

// preface is the start of every HTTP/2 connection of a client (RFC 9113, 3.4).
// No HTTP/1 method is PRI.
const preface = "PRI "

func newDoor(listener net.Listener) *door {
	d := &door{Listener: listener, closing: make(chan struct{})}
	d.grpc = &side{door: d, connections: make(chan net.Conn)}
	d.http = &side{door: d, connections: make(chan net.Conn)}
	d.done.Go(d.welcome)
	return d
}

// Close stops listening and waits for the connections that have not shown their
// protocol yet.
func (d *door) Close() error {
	close(d.closing)
	err := d.Listener.Close()
	d.done.Wait()
	return err
}

func (d *door) welcome() {
	for {
		connection, err := d.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select { // out of file descriptors, for example: other connections may free some
			case <-time.After(10 * time.Millisecond):
				continue
			case <-d.closing:
				return
			}
		}
		d.done.Go(func() { d.direct(connection) })
	}
}

func (d *door) direct(connection net.Conn) {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-d.closing:
			_ = connection.SetReadDeadline(time.Unix(1, 0)) // ends the read below
		case <-stop:
		}
	}()
	first := make([]byte, len(preface))
	_ = connection.SetReadDeadline(time.Now().Add(sniffTime)) // fails on a closed connection, and so will the read
	if _, err := io.ReadFull(connection, first); err != nil {
		_ = connection.Close()
		return
	}
	_ = connection.SetReadDeadline(time.Time{})
	to := d.http
	if string(first) == preface {
		to = d.grpc
	}
	select {
	case to.connections <- &sniffed{Conn: connection, first: bytes.NewReader(first)}:
	case <-d.closing:
		_ = connection.Close()
	}
}

// sniffed is a connection that returns the bytes already read first.
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

// side is the listener of one of the two servers.
type side struct {
	door        *door
	connections chan net.Conn
}

// Accept waits for a connection of this side's protocol.
func (s *side) Accept() (net.Conn, error) {
	select {
	case connection := <-s.connections:
		return connection, nil
	case <-s.door.closing:
		return nil, net.ErrClosed
	}
}

// Addr is the address that both sides share.
func (s *side) Addr() net.Addr { return s.door.Addr() }

// Close does nothing: the door closes both sides.
func (*side) Close() error { return nil }

package localpubsub

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestTheConnectionOfALostClientEnds: a client that answers no ping is gone, although its connection is still open.
func TestTheConnectionOfALostClientEnds(t *testing.T) {
	t.Parallel()
	listener, self, err := open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(Options{})
	server.keepAlive.Time, server.keepAlive.Timeout = time.Second, time.Second // gRPC takes no shorter Time
	server.serve(listener, self)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" // with a frame of no settings
	if _, err := io.WriteString(conn, preface); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

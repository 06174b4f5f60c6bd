package protocolmux_test

import (
	"io"
	"net"
	"testing"
	"time"

	"example.com/lockstep/localpubsub"
)

// TestSilentConnection shows that a connection that never sends a byte blocks
// neither other connections nor Close.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	speaking, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer speaking.Close()
	if _, err := io.WriteString(speaking, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(speaking); err != nil {
		t.Error(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := silent.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the silent connection is still open")
	}
}

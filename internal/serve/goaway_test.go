package serve

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"

	"example.com/lockstep/internal/porttest"
)

// written is a connection that keeps what is written to it.
type written struct {
	net.Conn
	bytes.Buffer
}

func (w *written) Read(p []byte) (int, error)  { return w.Buffer.Read(p) }
func (w *written) Write(p []byte) (int, error) { return w.Buffer.Write(p) }

// TestAGoAwayCutsNoFrame: net/http may write a frame in several parts, and the drain may begin between any two.
func TestAGoAwayCutsNoFrame(t *testing.T) {
	t.Parallel()
	var frames bytes.Buffer
	framer := http2.NewFramer(&frames, nil)
	for _, err := range []error{framer.WriteSettings(), framer.WriteData(1, false, []byte("hello")), framer.WriteData(1, true, nil)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for cut := range frames.Len() {
		out := &written{}
		conn := &framed{Conn: out}
		for _, part := range [][]byte{frames.Bytes()[:cut], frames.Bytes()[cut:], frames.Bytes()[:9]} {
			if _, err := conn.Write(part); err != nil {
				t.Fatal(err)
			}
			conn.leave()
		}
		kinds := map[http2.FrameType]int{}
		reader := http2.NewFramer(nil, &out.Buffer)
		first := true
		for out.Len() > 0 {
			frame, err := reader.ReadFrame()
			if err != nil {
				t.Fatalf("cut behind %d bytes: %v", cut, err)
			}
			if kind := frame.Header().Type; first && kind != http2.FrameSettings {
				t.Errorf("cut behind %d bytes: the first frame is %s", cut, kind)
			}
			first = false
			kinds[frame.Header().Type]++
		}
		if kinds[http2.FrameGoAway] != 1 || kinds[http2.FrameData] != 2 || kinds[http2.FrameSettings] != 2 {
			t.Errorf("cut behind %d bytes: %v", cut, kinds)
		}
	}
}

// TestOnlyTheAnswersEnd: net/http refuses a request that it does not read to its end. It closes its half of the connection
// behind the answer, and the whole only later. A reset, which could destroy the answer, would follow the bytes of the request.
func TestOnlyTheAnswersEnd(t *testing.T) {
	t.Parallel()
	lis := porttest.Listen(t)
	client, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := framingListener{lis}.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	half, ok := server.(interface{ CloseWrite() error })
	if !ok {
		t.Fatal("net/http finds no CloseWrite")
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the client reads %v, want EOF", err)
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := server.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the server reads %d bytes, %v", n, err)
	}
}

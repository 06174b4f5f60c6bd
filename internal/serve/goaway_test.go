package serve

import (
	"bytes"
	"net"
	"testing"

	"golang.org/x/net/http2"
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

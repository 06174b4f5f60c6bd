package serve

import (
	"net"
	"sync"
	"sync/atomic"
)

// goAway is a GOAWAY with the largest number of a stream: the client may open no more streams, and those that it has opened
// are served, also the ones on the way (RFC 9113, section 6.8). net/http can only send a GOAWAY with the last stream that it has
// read. It drops the streams on the way. A client or proxy that does not send them again fails these requests.
const goAway = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x7f\xff\xff\xff" + "\x00\x00\x00\x00"

// headerOfFrame is the length of the header before each frame of HTTP/2.
const headerOfFrame = 9

// framed is a connection that sends goAway between two frames of net/http.
type framed struct {
	net.Conn

	mu      sync.Mutex // one write at a time
	leaving atomic.Bool
	sent    bool
	begun   bool // the first bytes were written, which are the SETTINGS over HTTP/2
	http2   bool
	header  []byte // the written part of a frame's header that is incomplete
	payload int    // the length of the rest of a frame
}

// leave sends goAway once: now, or with the next frame if net/http is writing, because that may take until the client reads.
func (f *framed) leave() {
	f.leaving.Store(true)
	if f.mu.TryLock() {
		defer f.mu.Unlock()
		_ = f.announce() // an answer follows, with the same error
	}
}

func (f *framed) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.announce(); err != nil {
		return 0, err
	}
	n, err := f.Conn.Write(p)
	f.follow(p[:n])
	return n, err
}

// CloseWrite is for net/http, which closes its half of a connection behind the answer to a request that it has not read to the end.
// Without it, the client finds the end of the connection later, as a reset.
func (f *framed) CloseWrite() error {
	if half, ok := f.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (f *framed) announce() error {
	if !f.leaving.Load() || f.sent || !f.http2 || len(f.header) > 0 || f.payload > 0 {
		return nil
	}
	f.sent = true
	_, err := f.Conn.Write([]byte(goAway))
	return err
}

// follow notes the place in a frame at which p ends. Over HTTP/1 the place means nothing, and an answer begins with its version.
func (f *framed) follow(p []byte) {
	if !f.begun && len(p) > 0 {
		f.begun, f.http2 = true, p[0] != 'H'
	}
	for len(p) > 0 {
		n := min(len(p), f.payload)
		f.payload -= n
		p = p[n:]
		n = min(len(p), headerOfFrame-len(f.header))
		f.header = append(f.header, p[:n]...)
		p = p[n:]
		if len(f.header) == headerOfFrame {
			f.payload = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
			f.header = f.header[:0]
		}
	}
}

// framingListener accepts connections that can send goAway.
type framingListener struct{ net.Listener }

func (l framingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &framed{Conn: conn}, nil
}

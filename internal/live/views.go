package live

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// maxViews bounds the browsers that look at the same time.
	maxViews = 16
	// keepAlive is the pause between two lines that a stream sends even without a frame. A failed
	// write of such a line shows that the browser has gone.
	keepAlive = 10 * time.Second
)

// views are the streams of frames. Each stream holds at most one frame that it has not sent. A
// newer frame takes its place.
type views struct {
	mu     sync.Mutex
	last   []byte
	open   map[chan []byte]bool
	came   chan struct{} // has a token after a viewer has come
	closed chan struct{}
	once   *sync.Once
}

func newViews() views {
	return views{open: map[chan []byte]bool{}, came: make(chan struct{}, 1), closed: make(chan struct{}), once: new(sync.Once)}
}

// Viewers returns how many browsers look now.
func (v *views) Viewers() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.open)
}

// Close ends the streams, so that a server can shut down.
func (v *views) Close() { v.once.Do(func() { close(v.closed) }) }

func (v *views) send(frame []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = frame
	for view := range v.open {
		replace(view, frame)
	}
}

// replace puts frame into view, which has room for one frame. It drops an older frame.
func replace(view chan []byte, frame []byte) {
	select {
	case <-view:
	default:
	}
	view <- frame
}

// enter adds a stream. It returns nil if there are maxViews streams already.
func (v *views) enter() chan []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.open) >= maxViews {
		return nil
	}
	view := make(chan []byte, 1)
	if v.last != nil {
		view <- v.last
	}
	v.open[view] = true
	select {
	case v.came <- struct{}{}:
	default:
	}
	return view
}

func (v *views) leave(view chan []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.open, view)
}

// stream sends frames as server-sent events. A HEAD request gets the headers only, and no view. Nothing is
// written to its client, so stream would not notice that the client has gone, and would keep the view.
func (v *views) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	view := v.enter()
	if view == nil {
		http.Error(w, "too many viewers", http.StatusServiceUnavailable)
		return
	}
	defer v.leave(view)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{}) // otherwise the server's time limit of a request ends the stream
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	text := "retry: 1000\n\n"
	for {
		_ = control.SetWriteDeadline(time.Now().Add(writeTime)) // if this fails, the server's own limit stays
		if _, err := fmt.Fprint(w, text); err != nil {
			return
		}
		if err := control.Flush(); err != nil {
			return
		}
		select {
		case frame := <-view:
			text = fmt.Sprintf("data: %s\n\n", frame)
		case <-quiet.C:
			text = ": still here\n\n"
		case <-r.Context().Done():
			return
		case <-v.closed:
			return
		}
	}
}

package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// unreadTime is how long a tool that has to end waits for a reader of its output.
const unreadTime = time.Second

var errUnread = errors.New("the output is not read")

// outlet writes the output of a tool to w. A write to a pipe that is not read waits without an end. Once done is
// closed, outlet waits for unreadTime, and then returns errUnread. So the tool can give back what it holds, such as
// the leases of dead letters, and end before it is killed.
type outlet struct {
	w     io.Writer
	done  <-chan struct{}
	mu    sync.Mutex // is held during a write to w
	stuck atomic.Bool
}

func newOutlet(ctx context.Context, w io.Writer) *outlet { return &outlet{w: w, done: ctx.Done()} }

// Write implements io.Writer.
func (o *outlet) Write(text []byte) (int, error) {
	if o.stuck.Load() {
		return 0, errUnread
	}
	written := make(chan error, 1)
	copied := bytes.Clone(text) // the caller may use text again after errUnread
	go func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		_, err := o.w.Write(copied)
		written <- err
	}()
	select {
	case err := <-written:
		return len(text), err
	case <-o.done:
	}
	timeout := time.NewTimer(unreadTime)
	defer timeout.Stop()
	select {
	case err := <-written:
		return len(text), err
	case <-timeout.C:
		o.stuck.Store(true)
		return 0, errUnread
	}
}

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

// output writes the output of a tool to w. A write to a pipe that is not read waits without an end. Once done is
// closed, output waits for unreadTime, and then returns errUnread. So the tool can give back what it holds, such as
// the leases of dead letters, and end before it is killed.
type output struct {
	w     io.Writer
	done  <-chan struct{}
	mu    sync.Mutex // is held during a write to w
	stuck atomic.Bool
}

func newOutput(ctx context.Context, w io.Writer) *output { return &output{w: w, done: ctx.Done()} }

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
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

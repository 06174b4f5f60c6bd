package telemetry

import (
	"bytes"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// outputTime is how long a line waits for the output.
const outputTime = time.Second

// output writes lines to w, and waits for w no longer than outputTime. While w does not take a line, further
// lines are dropped. When w takes lines again, output writes a line with the number of lost lines. Without this
// bound, each part of the process would wait at its next line: requests after their commit, the relay, the
// drain.
type output struct {
	w io.Writer
	// writing has a token while a line is written, and stuck is true if that takes longer than outputTime.
	writing chan struct{}
	stuck   atomic.Bool
	lost    atomic.Int64
	// report writes to w directly.
	report *slog.Logger
}

func newOutput(w io.Writer, report *slog.Logger) *output {
	return &output{w: w, writing: make(chan struct{}, 1), report: report}
}

// Write returns no error for a line that is dropped, because a logger could do nothing about it.
func (o *output) Write(line []byte) (int, error) {
	timeout := time.NewTimer(outputTime)
	defer timeout.Stop()
	if !o.begin(timeout.C) {
		o.lost.Add(1)
		return len(line), nil
	}
	written := make(chan error, 1)
	copied := bytes.Clone(line) // the handler uses line again after Write
	go func() {
		_, err := o.w.Write(copied)
		o.end()
		written <- err
	}()
	select {
	case err := <-written:
		return len(line), err
	case <-timeout.C:
		o.stuck.Store(true)
		return len(line), nil
	}
}

// begin reports whether the caller may write. It does not wait for a line that is stuck.
func (o *output) begin(timeout <-chan time.Time) bool {
	select {
	case o.writing <- struct{}{}:
		return true
	default:
	}
	if o.stuck.Load() {
		return false
	}
	select {
	case o.writing <- struct{}{}:
		return true
	case <-timeout:
		return false
	}
}

// end lets the next line be written. If lines were lost, end first reports them.
func (o *output) end() {
	if lost := o.lost.Swap(0); lost > 0 {
		o.report.Warn("lines of the log are lost, because the output took no line for too long", "lines", lost)
	}
	o.stuck.Store(false)
	<-o.writing
}

package process

import (
	"strings"
	"sync"
)

// keep is the number of bytes of output that a tail keeps. They are about thirty lines, which is
// enough to explain a failed start.
const keep = 4 << 10

// tail keeps the last bytes that were written to it. Its zero value is ready
// for use.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	if over := len(t.end) - keep; over > 0 {
		t.end = append(t.end[:0], t.end[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.end))
}

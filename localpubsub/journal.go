package localpubsub

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A journal keeps a server's state in a file: the state at the time when the
// file was last rewritten, followed by a record of each change since
// ([record]). A nil journal keeps nothing.
//
//	publish, ack, tick ──▶ gate, shared ──▶ change, append ──▶ sync ──▶ answer
//	all other changes  ──▶ gate, alone  ──▶ change, append ──▶ sync ──▶ answer
//	file too large     ──▶ gate, alone  ──▶ all state into FILE.new, renamed to FILE
//
// A record is appended under the lock of the resource that it changes, so the
// records of one resource stand in the order of their changes. A call that
// passed the gate answers only when all records up to its own have been
// written; one write takes the records of many calls. Written means handed to
// the operating system. A killed process loses nothing that was answered. A
// machine that loses power may lose its last moments, because only a rewritten
// file is forced to the disk.
//
// After a failed write the file no longer follows the state, and every call
// that would change the state is UNAVAILABLE until the server is restarted.
type journal struct {
	path  string
	store *store

	gate sync.RWMutex // taken before all other locks

	mu                sync.Mutex
	done              sync.Cond // signalled when a write has ended
	file              *os.File
	pending, spare    []byte
	appended, written int64 // bytes since the start
	writing           bool
	err               error // of the write that failed

	size, base int64  // of the file, now and when it was last rewritten
	slack      int64  // defaultSlack, except in tests
	generation uint32 // counts the rewrites
}

const (
	// defaultSlack is how much a file may grow before its size is checked
	// again.
	defaultSlack = 64 << 20
	// spareLimit is the largest buffer that is kept for the next write.
	spareLimit = 1 << 20
)

var errClosed = status.Error(codes.Unavailable, "the server is closing")

// newJournal takes over a file that is locked.
func newJournal(file *os.File, alive *store) *journal {
	j := &journal{path: file.Name(), file: file, store: alive, slack: defaultSlack}
	j.done.L = &j.mu
	return j
}

// append adds a record to the next write. The caller is inside the gate, and
// calls sync after it has left.
func (j *journal) append(r *record) {
	if j == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return
	}
	before := len(j.pending)
	j.pending = appendFrame(j.pending, r)
	j.appended += int64(len(j.pending) - before)
}

// sync returns when all records appended so far are written, or when the
// journal has failed.
func (j *journal) sync() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for wanted := j.appended; j.written < wanted && j.err == nil; {
		if j.writing {
			j.done.Wait()
			continue
		}
		j.write()
	}
	return j.err
}

// write writes the pending records, for all callers that wait for them. It is
// called with the lock held, and releases it during the write.
func (j *journal) write() {
	taken := j.pending
	j.pending, j.spare, j.writing = j.spare[:0], nil, true
	j.mu.Unlock()
	_, err := j.file.Write(taken)
	j.mu.Lock()
	j.writing = false
	j.written += int64(len(taken))
	j.size += int64(len(taken))
	if err != nil {
		j.err = status.Errorf(codes.Unavailable, "%s: the server cannot keep its state any more: %v", j.path, errors.Unwrap(err))
	}
	if cap(taken) <= spareLimit {
		j.spare = taken
	}
	j.done.Broadcast()
}

// rewrite replaces the file by a new one with the records from dump. The caller
// is alone inside the gate. On any failure the old file stays.
func (j *journal) rewrite(dump func(write func(*record) error) error) error {
	if err := j.sync(); err != nil {
		return err
	}
	file, size, err := replaceFile(j.path, dump)
	if err != nil {
		return fmt.Errorf("write the journal anew: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_ = j.file.Close() // it has no name in the directory any more
	j.file, j.size, j.base = file, size, size
	return nil
}

// large reports whether the file should be rewritten: when more than half of it
// is outdated, give or take the slack.
func (j *journal) large() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err == nil && j.size > j.base+j.slack && j.size > 2*j.store.bytes.Load()+j.slack
}

// postpone has the size checked again after the file has grown by the slack.
func (j *journal) postpone() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.base = j.size
}

// close writes the pending records and closes the file. Records that are
// appended later are not kept; the sync after them returns an error.
func (j *journal) close() error {
	if j == nil {
		return nil
	}
	err := j.sync()
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.writing {
		j.done.Wait()
	}
	if j.err == nil {
		j.err = errClosed
	}
	j.done.Broadcast()
	return errors.Join(err, j.file.Close())
}

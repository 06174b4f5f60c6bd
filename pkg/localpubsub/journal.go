package localpubsub

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A journal keeps a server's state in a file, as records of what has changed
// ([record]) behind what there was when the file was last written anew. A nil
// journal keeps nothing.
//
//	publish, ack, tick ──▶ gate, shared ──▶ change, append ──▶ sync ──▶ answer
//	all other changes  ──▶ gate, alone  ──▶ change, append ──▶ sync ──▶ answer
//	file too large     ──▶ gate, alone  ──▶ all state into FILE.new, renamed to FILE
//
// A record is appended under the lock of what it changes, so records of one
// resource stand in the order of their changes. Whoever passed the gate answers
// only when all records up to then have been written: those of many calls leave
// with one write. Written means given to the operating system. A killed process
// loses nothing that was answered; a machine that loses power may lose its last
// moments, since nothing but a file written anew is forced to the disk.
//
// After a write that failed, the file no longer follows, and every call that
// would change something is UNAVAILABLE until the server is started again.
type journal struct {
	path  string
	store *store

	gate sync.RWMutex // taken before all other locks

	mu                sync.Mutex
	done              sync.Cond // a write has ended
	file              *os.File
	pending, spare    []byte
	appended, written int64 // bytes since the start
	writing           bool
	err               error // of the write that failed

	size, base int64  // of the file, now and when it was last written anew
	slack      int64  // defaultSlack, but for tests
	generation uint32 // counts how often it was
}

const (
	// defaultSlack is how much a file may grow before it is looked at again.
	defaultSlack = 64 << 20
	// spareLimit is the largest buffer that is kept for the next write.
	spareLimit = 1 << 20
)

var errClosed = status.Error(codes.Unavailable, "the server is closing")

// newJournal takes a file that is locked.
func newJournal(file *os.File, alive *store) *journal {
	j := &journal{path: file.Name(), file: file, store: alive, slack: defaultSlack}
	j.done.L = &j.mu
	return j
}

// append adds a record to those that the next write takes. The caller is inside
// the gate and syncs when it has left.
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

// sync returns when all that was appended is written, or can no longer be.
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

// write writes what is pending, for everybody who waits. It is called with the
// lock, which it gives up meanwhile.
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

// rewrite replaces the file by one that dump fills. The caller is alone inside the
// gate. Whatever fails, the old file stays.
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
	_ = j.file.Close() // nothing leads to it any more
	j.file, j.size, j.base = file, size, size
	return nil
}

// large says whether to write the file anew: when more than half of it is
// outdated, give or take the slack.
func (j *journal) large() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err == nil && j.size > j.base+j.slack && j.size > 2*j.store.bytes.Load()+j.slack
}

// postpone looks at the size again when the file has grown by the slack.
func (j *journal) postpone() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.base = j.size
}

// close writes what is pending and lets go of the file. What is appended later is
// not kept, and who syncs it is told so.
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

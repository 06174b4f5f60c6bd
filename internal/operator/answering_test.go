package operator

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"example.com/lockstep/internal/command"
)

// A statement without an answer ends. A command that goes on does not, however long it takes, nor
// does one that waits for something else.
func TestACommandDoesNotWaitForASilentDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var said bytes.Buffer
	s := &invocation{Call: command.Call{Err: &said}, db: b.video}
	ctx, stop := s.answering(t.Context(), 50*time.Millisecond)
	defer stop()
	for range 100 {
		if _, err := s.db.Exec(ctx, `SELECT pg_sleep(0.001)`); err != nil {
			t.Fatal(err)
		}
	}
	for range silentLooks + 2 { // no connection is in use
		<-time.NewTimer(50 * time.Millisecond).C
	}
	_, err := s.db.Exec(ctx, `SELECT pg_sleep(600)`)
	if err = silence(ctx, err); !errors.Is(err, errSilent) || !bytes.Contains(said.Bytes(), []byte("waiting for an answer")) {
		t.Errorf("%v; said %q", err, said.String())
	}
	if err := silence(ctx, nil); err != nil {
		t.Errorf("a command that has ended well: %v", err)
	}
	if other := errors.New("other"); !errors.Is(silence(context.Background(), other), other) {
		t.Error("another error is lost")
	}
}

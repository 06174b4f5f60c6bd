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
	const look = 50 * time.Millisecond
	ctx, stop := s.answering(t.Context(), look)
	defer stop()
	for begin := time.Now(); time.Since(begin) < 2*silentLooks*look; { // each statement has an answer
		if _, err := s.db.Exec(ctx, `SELECT pg_sleep(0.01)`); err != nil {
			t.Fatal(err)
		}
	}
	<-time.NewTimer(2 * silentLooks * look).C // no connection is in use
	if ctx.Err() != nil {
		t.Fatalf("the command was ended: %v", context.Cause(ctx))
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

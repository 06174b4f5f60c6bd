package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// stuck is the answer of a call whose connection has no time to break the call off.
type stuck struct {
	http.ResponseWriter
	began, release chan struct{}
}

func (s stuck) SetWriteDeadline(time.Time) error {
	close(s.began)
	<-s.release
	return nil
}

func TestACallThatCannotBeBrokenOffHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	o, first := &own{}, stuck{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	defer close(first.release)
	enter := func(w http.ResponseWriter) bool {
		_, ok := o.enter(func(error) {}, w)
		return ok
	}
	enter(first)
	for range 2*maxOwn - 1 {
		enter(httptest.NewRecorder())
	}
	go enter(httptest.NewRecorder()) // it breaks off the first
	<-first.began
	entered := make(chan bool)
	go func() { entered <- enter(httptest.NewRecorder()) }()
	select {
	case ok := <-entered:
		if !ok {
			t.Error("a further call is refused")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("a further call waits for the connection of another")
	}
}

// Calls that were broken off may take their time to leave. 64 of them keep further calls out.
func TestOwnCallsThatHaveNotLeftAreBounded(t *testing.T) {
	t.Parallel()
	o, leaves := &own{}, []func(){}
	for {
		_, end := context.WithCancelCause(t.Context())
		leave, ok := o.enter(end, httptest.NewRecorder())
		if !ok {
			break
		}
		if leaves = append(leaves, leave); len(leaves) == 1000 {
			t.Fatal("a thousand calls have entered, and none has left")
		}
	}
	if len(leaves) != 2*maxOwn+64 {
		t.Errorf("%d calls have entered, and none has left; want 80", len(leaves))
	}
	leaves[0]()
	if _, ok := o.enter(func(error) {}, httptest.NewRecorder()); !ok {
		t.Error("a call is refused after another has left")
	}
	for _, leave := range leaves[1:] {
		leave()
	}
	if len(o.underWay) != 1 || o.ending != 0 {
		t.Errorf("%d calls are under way and %d are ending, after all but one have left", len(o.underWay), o.ending)
	}
}

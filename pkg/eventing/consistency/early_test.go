package consistency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/lockstep/pkg/eventing/notify"
)

// A commit of this process tells its position: no read of the projection is needed to end a wait.
func TestAKnownPositionNeedsNoRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := w.begin(ctx, at("v", "a", 2))
		synctest.Wait()
		looks := c.looked()
		w.Notify(t.Context(), at("v", "a", 1))
		synctest.Wait()
		if len(ended) != 0 {
			t.Fatal("the wait ends at a version below its own")
		}
		w.Notify(t.Context(), at("v", "a", 2))
		if r := <-ended; !r.reached || r.took != 0 {
			t.Errorf("%+v", r)
		}
		if n := c.looked() - looks; n != 0 {
			t.Errorf("%d reads of the projection", n)
		}
	})
}

// reads is a Query that finds the projection behind, until it has moved.
type reads struct {
	during func() // while it reads
	moved  bool
	again  error  // of all reads but the first
	asked  func() // when the owner is asked, unless it is nil
	count  int
}

func (r *reads) ReadProjection(context.Context) (Freshness, error) {
	found := Absent
	if r.moved {
		found = Reached
	}
	r.during()
	r.count++
	if r.count > 1 && r.again != nil {
		return Absent, r.again
	}
	return found, nil
}

var errAsked = errors.New("the owner is asked")

func (r *reads) FetchFromOwner(ctx context.Context) error {
	if r.asked != nil {
		r.asked()
	}
	return cmp.Or(ctx.Err(), errAsked)
}

func requirement(t *testing.T, wait time.Duration, positions ...Position) Requirement {
	t.Helper()
	required, err := Request{Token: Token{Positions: positions}.String(), Wait: wait}.
		Requirement(positions[0].AggregateType, func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return required
}

// A commit after a reader's own read and before its wait ends that wait, and no read of the
// projection for waiting readers is needed.
func TestAReaderMissesNoCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, true)
		q := &reads{}
		q.during = func() {
			if !q.moved {
				q.moved = true
				w.Notify(t.Context(), at("v", "a", 2))
			}
		}
		began := time.Now()
		outcome, err := NewReader(w).Read(t.Context(), requirement(t, time.Minute, at("v", "a", 2)), q)
		if outcome != Waited || err != nil || time.Since(began) != 0 {
			t.Errorf("%s, %v, after %s", outcome, err, time.Since(began))
		}
		if n := c.looked(); n != 0 || !w.empty() {
			t.Errorf("%d reads of the projection; nothing is left: %t", n, w.empty())
		}
	})
}

// A read may find one of two positions reached and wait for the other. No commit of the first one
// comes any more. The commit of the second one ends the wait.
func TestAPositionThatIsReachedDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, true)
		c.set("a", 1, nil)
		q, ended := &reads{}, make(chan time.Duration, 1)
		q.during = func() { q.moved = true } // for the second read
		began := time.Now()
		go func() {
			outcome, err := NewReader(w).Read(t.Context(), requirement(t, 8*time.Second, at("v", "a", 1), at("v", "b", 1)), q)
			if outcome != Waited || err != nil {
				t.Errorf("%s, %v", outcome, err)
			}
			ended <- time.Since(began)
		}()
		<-time.After(500 * time.Millisecond) // of the test's own clock
		c.set("b", 1, nil)
		w.Notify(t.Context(), at("v", "b", 1))
		if took := <-ended; took != 500*time.Millisecond {
			t.Errorf("the wait took %s", took)
		}
	})
}

// Rows that the reader may not see end no wait early, so the time of an answer does not tell that
// they exist.
func TestRowsOfAnotherTenantEndNoWait(t *testing.T) {
	t.Parallel()
	for name, moved := range map[string]func(*Waiters, *readModel){
		"before the read": func(_ *Waiters, c *readModel) { c.set("a", 1, nil); c.set("b", 1, nil) },
		"later":           func(w *Waiters, _ *readModel) { w.Notify(t.Context(), at("v", "a", 1), at("v", "b", 1)) },
		"never":           func(*Waiters, *readModel) {},
	} {
		for _, wanted := range [][]Position{{at("v", "a", 1)}, {at("v", "a", 1), at("v", "b", 1)}} {
			synctest.Test(t, func(t *testing.T) {
				w, c := watched(t, 1, true)
				if name == "before the read" {
					moved(w, c)
				}
				ended, began := make(chan error, 1), time.Now()
				go func() {
					_, err := NewReader(w).Read(t.Context(), requirement(t, 8*time.Second, wanted...), &reads{during: func() {}})
					ended <- err
				}()
				<-time.After(time.Second) // of the test's own clock
				moved(w, c)
				if err := <-ended; err == nil || time.Since(began) != 8*time.Second || !w.empty() {
					t.Errorf("rows that move %s, %d wanted: %v after %s; nothing is left: %t", name, len(wanted), err, time.Since(began), w.empty())
				}
			})
		}
	}
}

// A reader that does not see the rows that have ended its wait has no place while it reads again, so
// that others may wait. It waits out its time even if they have taken all places. Its answer is that
// of a reader for whose wait no rows exist.
func TestAReaderThatSeesNoRowsAnswersAsIfTheyDidNotExist(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := watched(t, 1, true)
		ctx, cancel := context.WithCancel(t.Context())
		var other <-chan result
		q := &reads{}
		q.during = func() {
			if q.count > 0 {
				other = w.begin(ctx, at("v", "b", 1))
				synctest.Wait()
				if len(other) != 0 {
					t.Errorf("a reader keeps its place while it reads again: %+v", <-other)
				}
			}
		}
		q.asked = func() {
			cancel()
			<-other
			if !w.empty() {
				t.Error("the reader holds its place while the owner is asked")
			}
		}
		ended, began := make(chan error, 1), time.Now()
		go func() {
			_, err := NewReader(w).Read(t.Context(), requirement(t, 8*time.Second, at("v", "a", 1)), q)
			ended <- err
		}()
		<-time.After(time.Second) // of the test's own clock
		w.Notify(t.Context(), at("v", "a", 1))
		<-time.After(time.Millisecond)
		if _, err := w.Wait(t.Context(), at("v", "c", 1)); !errors.Is(err, ErrTooManyWaiters) {
			t.Errorf("one reader too many: %v", err)
		}
		if err := <-ended; !errors.Is(err, errAsked) || time.Since(began) != 8*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// An error of the second read is the answer at once: the reader does not wait, and asks no owner,
// where reads are refused because there are too many.
func TestAnErrorOfTheSecondReadIsTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := watched(t, 1, true)
		q, began := &reads{again: ErrBusy}, time.Now()
		q.during = func() { w.Notify(t.Context(), at("v", "a", 1)) }
		outcome, err := NewReader(w).Read(t.Context(), requirement(t, 8*time.Second, at("v", "a", 1)), q)
		if outcome != Failed || !errors.Is(err, ErrBusy) || time.Since(began) != 0 || !w.empty() {
			t.Errorf("%s, %v after %s; nothing is left: %t", outcome, err, time.Since(began), w.empty())
		}
	})
}

// A reader whose wait ends just before its time is over does not read again, because the read might
// last beyond that time, which would tell that rows exist that it does not see.
func TestAReaderWithoutTimeAsksTheOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := watched(t, 1, true)
		q, ended, began := &reads{during: func() {}}, make(chan error, 1), time.Now()
		go func() {
			_, err := NewReader(w).Read(t.Context(), requirement(t, 8*time.Second, at("v", "a", 1)), q)
			ended <- err
		}()
		<-time.After(8*time.Second - readTime/2) // of the test's own clock
		w.Notify(t.Context(), at("v", "a", 1))
		if err := <-ended; !errors.Is(err, errAsked) || q.count != 1 || time.Since(began) != 8*time.Second {
			t.Errorf("%v after %d reads and %s", err, q.count, time.Since(began))
		}
	})
}

// A deadline that never comes is no deadline in the past. A gRPC client may send one of centuries.
func TestAReaderWithAllTheTimeAsksTheOwner(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for _, wait := range []time.Duration{30 * year, 40 * year, 250 * year} {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		w := NewWaiters(1, &readModel{}, notify.New(nil, "", "test", slog.New(slog.DiscardHandler)))
		if _, err := NewReader(w).Read(ctx, requirement(t, 0, at("v", "a", 1)), &reads{during: func() {}}); !errors.Is(err, errAsked) {
			t.Errorf("%s: %v", wait, err)
		}
		cancel()
	}
}

// A server that drains ends the wait of such a reader, too.
func TestDrainEndsAWaitForRowsThatTheReaderDoesNotSee(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := watched(t, 1, true)
		ended, began := make(chan error, 1), time.Now()
		go func() {
			_, err := NewReader(w).Read(t.Context(), requirement(t, 8*time.Second, at("v", "a", 1)), &reads{during: func() {}})
			ended <- err
		}()
		synctest.Wait()
		w.Notify(t.Context(), at("v", "a", 1))
		synctest.Wait()
		if _, err := w.Wait(t.Context(), at("v", "b", 1)); !errors.Is(err, ErrTooManyWaiters) {
			t.Errorf("the reader waits without a place: %v", err)
		}
		w.Drain()
		if err := <-ended; !errors.Is(err, errAsked) || time.Since(began) != 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// The projection moves between a reader's own read and its wait, and another reader takes the last
// place. The first reader needs no place for the rows that it sees. For rows that it does not see it
// is refused, as a reader is for rows that do not exist.
func TestAReaderWithoutAPlaceWaitsForNothing(t *testing.T) {
	t.Parallel()
	for _, sees := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, _ := watched(t, 1, true)
			ctx, cancel := context.WithCancel(t.Context())
			var other <-chan result
			q := &reads{}
			q.during = func() {
				if q.count > 0 {
					return
				}
				w.Notify(t.Context(), at("v", "a", 1))
				other = w.begin(ctx, at("v", "b", 1))
				synctest.Wait()
				q.moved = sees
			}
			began := time.Now()
			outcome, err := NewReader(w).Read(t.Context(), requirement(t, 8*time.Second, at("v", "a", 1)), q)
			if (outcome == Waited) != sees || errors.Is(err, ErrTooManyWaiters) == sees || time.Since(began) != 0 {
				t.Errorf("sees the rows: %t; %s, %v after %s", sees, outcome, err, time.Since(began))
			}
			cancel()
			<-other
			if !w.empty() {
				t.Error("something is left")
			}
		})
	}
}

// A reader without a token has nothing to wait for.
func TestAReadWithoutATokenDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := watched(t, 1, true)
		q, began := &reads{during: func() {}}, time.Now()
		_, err := NewReader(w).Read(t.Context(), Requirement{wait: 8 * time.Second}, q)
		if !errors.Is(err, errAsked) || q.count != 1 || time.Since(began) != 0 {
			t.Errorf("%v after %s and %d reads", err, time.Since(began), q.count)
		}
		if reached, err := w.Wait(t.Context()); !reached || err != nil {
			t.Errorf("a wait for no position: %t, %v", reached, err)
		}
	})
}

// Readers that do not wait take no place from those that do.
func TestAReadTakesNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := watched(t, 1, true)
		var ended <-chan result
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		q := &reads{moved: true, during: func() {
			ended = w.begin(ctx, at("v", "a", 1))
			synctest.Wait()
		}}
		if outcome, err := NewReader(w).Read(t.Context(), requirement(t, time.Minute, at("v", "a", 2)), q); outcome != Fresh || err != nil {
			t.Errorf("%s, %v", outcome, err)
		}
		if len(ended) != 0 {
			t.Fatalf("the only place was taken: %+v", <-ended)
		}
		behind := &reads{during: func() {}}
		if _, err := NewReader(w).Read(t.Context(), requirement(t, time.Minute, at("v", "a", 2)), behind); !errors.Is(err, ErrTooManyWaiters) {
			t.Errorf("one more reader that has to wait: %v", err)
		}
		w.Notify(t.Context(), at("v", "a", 1))
		if r := <-ended; !r.reached || !w.empty() {
			t.Errorf("%+v; nothing is left: %t", r, w.empty())
		}
	})
}

// Readers that may not have to wait leave half of the memory to those that do.
func TestReadsLeaveMemoryToWaiters(t *testing.T) {
	t.Parallel()
	w := NewWaiters(10_000, nil, notify.New(nil, "", "test", slog.New(slog.DiscardHandler)))
	var long []Position
	for i := range MaxPositions {
		long = append(long, at("v", fmt.Sprintf("a%02d", i), 1))
	}
	required, reads := requirement(t, time.Minute, long...), 0
	for r := NewReader(w); r.addEarly(required) != nil; {
		reads++
	}
	for n := range reads / 2 {
		if _, err := w.add(long); err != nil {
			t.Fatalf("%d reads are under way, and %d readers wait: %v", reads, n, err)
		}
	}
	if reads == 0 || w.bytes > maxBytes {
		t.Errorf("%d reads, %d bytes", reads, w.bytes)
	}
}

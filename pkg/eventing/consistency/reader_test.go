package consistency_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/notify"
	"example.com/lockstep/pkg/eventing/txn"
)

// In these tests time is the bubble's: it stands still while any goroutine can run, so
// that a bound is met exactly or not at all.

// has is the position of a projection, or of an owner: epoch and version of the one
// aggregate.
type has struct{ epoch, version int64 }

func (h has) position() consistency.Position {
	return consistency.Position{AggregateType: "video", AggregateID: "a", Epoch: h.epoch, Version: h.version}
}

func (h has) token() string {
	return consistency.Token{Positions: []consistency.Position{h.position()}}.String()
}

// answers is an owner's way to answer a call.
type answers int

const (
	atOnce answers = iota
	away
	never
)

// read is one read, of a projection that moves only at the time moves.
type read struct {
	consistency.Request

	copy, owner has
	owners      answers
	deadline    time.Duration // 0: none
	drains      time.Duration // when the waits end; 0: never
	moves       time.Duration // when the copy gets the demanded version, without a notification; 0: never

	asked bool
}

// do returns how the read ended, and after how long.
func (r *read) do(t *testing.T) (o consistency.Outcome, took time.Duration, err error) {
	t.Helper()
	waiters := consistency.NewWaiters(1, nil, notify.New(nil, "", "test", slog.New(slog.DiscardHandler)))
	d, err := r.Requirement("video", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if r.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.deadline)
		defer cancel()
	}
	began := time.Now()
	if r.drains > 0 {
		defer time.AfterFunc(r.drains, waiters.Drain).Stop()
	}
	o, err = consistency.NewReader(waiters).Read(ctx, d, query{func(context.Context) (consistency.Freshness, error) {
		if r.moves > 0 && time.Since(began) >= r.moves {
			r.copy = has{d.Positions()[0].Epoch, d.Positions()[0].Version}
		}
		switch {
		case len(d.Unmet(r.copy.position())) == 0:
			return consistency.Reached, nil
		case r.copy.version > 0:
			return consistency.Behind, nil
		}
		return consistency.Absent, nil
	}, func(ctx context.Context) error {
		r.asked = true
		switch r.owners {
		case away:
			return consistency.ErrOwnerUnavailable
		case never:
			<-ctx.Done()
			return ctx.Err()
		case atOnce:
		}
		if len(d.Unmet(r.owner.position())) > 0 {
			return consistency.ErrAhead
		}
		return nil
	}})
	return o, time.Since(began), err
}

// A write of the owner's answer that failed leaves the reader what is there, and what is stale to those who take it.
func TestAnAnswerIsNotWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, cause := range []error{txn.ErrLocked, txn.ErrBusy, broken} {
			for _, stale := range []bool{false, true} {
				d, err := consistency.Request{Token: has{1, 2}.token(), StaleIfError: stale}.Requirement("video", func(string) bool { return true })
				if err != nil {
					t.Fatal(err)
				}
				behind := func(context.Context) (consistency.Freshness, error) { return consistency.Behind, nil }
				o, err := newReader().Read(t.Context(), d, query{behind, func(context.Context) error { return fmt.Errorf("take over: %w", cause) }})
				if taken := stale && !errors.Is(cause, broken); taken != (o == consistency.Stale) || taken != (err == nil) || !taken && !errors.Is(err, cause) {
					t.Errorf("%v, stale rather than an error: %t: %s, %v", cause, stale, o, err)
				}
			}
		}
	})
}

func TestARead(t *testing.T) {
	t.Parallel()
	old, current := has{1, 1}, has{1, 2}
	wants := func(wait time.Duration) consistency.Request {
		return consistency.Request{Token: current.token(), Wait: wait}
	}
	staleIfError := func(q consistency.Request) consistency.Request { q.StaleIfError = true; return q }
	fully := consistency.Request{Mode: consistency.FullyConsistent, Wait: time.Hour}
	for name, tc := range map[string]struct {
		read
		outcome consistency.Outcome
		took    time.Duration
		failure error
	}{
		"the copy is there":           {read{Request: wants(time.Second), copy: current, owner: current}, consistency.Fresh, 0, nil},
		"the server drains":           {read{Request: wants(time.Minute), copy: old, owner: current, drains: time.Second}, consistency.Authority, time.Second, nil},
		"the wait ends":               {read{Request: wants(3 * time.Second), copy: old, owner: current}, consistency.Authority, 3 * time.Second, nil},
		"the ceiling":                 {read{Request: wants(time.Hour), copy: old, owner: current}, consistency.Authority, consistency.MaxWait, nil},
		"no wait":                     {read{Request: wants(0), copy: old, owner: current}, consistency.Authority, 0, nil},
		"half of the deadline":        {read{Request: wants(time.Hour), copy: old, owner: current, deadline: 4 * time.Second}, consistency.Authority, 2 * time.Second, nil},
		"forged":                      {read{Request: wants(time.Second), copy: old, owner: old}, consistency.Failed, time.Second, consistency.ErrAhead},
		"the owner is away":           {read{Request: wants(time.Second), copy: old, owners: away}, consistency.Failed, time.Second, consistency.ErrOwnerUnavailable},
		"the owner hangs":             {read{Request: wants(2 * time.Second), copy: old, owners: never}, consistency.Failed, 2*time.Second + consistency.FetchTimeout, consistency.ErrOwnerUnavailable},
		"and a deadline is near":      {read{Request: wants(time.Hour), copy: old, owners: never, deadline: 4 * time.Second}, consistency.Failed, 3800 * time.Millisecond, consistency.ErrOwnerUnavailable},
		"stale rather than nothing":   {read{Request: staleIfError(wants(time.Hour)), copy: old, owners: never, deadline: 4 * time.Second}, consistency.Stale, 3800 * time.Millisecond, nil},
		"less stale than at first":    {read{Request: staleIfError(wants(time.Second)), copy: old, owners: away, moves: time.Second / 2}, consistency.Waited, time.Second, nil},
		"nothing is not stale":        {read{Request: staleIfError(wants(0)), owners: away}, consistency.Failed, 0, consistency.ErrOwnerUnavailable},
		"forged is not stale":         {read{Request: staleIfError(wants(0)), copy: old, owner: old}, consistency.Failed, 0, consistency.ErrAhead},
		"fully consistent":            {read{Request: fully, copy: current, owner: current}, consistency.Authority, 0, nil},
		"fully consistent, or stale":  {read{Request: staleIfError(fully), copy: old, owners: never}, consistency.Stale, consistency.FetchTimeout, nil},
		"fully consistent, or error":  {read{Request: fully, copy: old, owners: away}, consistency.Failed, 0, consistency.ErrOwnerUnavailable},
		"from before a restore":       {read{Request: wants(time.Second), copy: has{2, 1}, owner: has{2, 1}}, consistency.Fresh, 0, nil},
		"a restore of the owner only": {read{Request: wants(time.Second), copy: old, owner: has{2, 1}}, consistency.Authority, time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				outcome, took, err := tc.do(t)
				if outcome != tc.outcome || took != tc.took {
					t.Errorf("%s after %s; want %s after %s", outcome, took, tc.outcome, tc.took)
				}
				if !errors.Is(err, tc.failure) || (err != nil) != (outcome == consistency.Failed) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// A reader that disconnects gets no answer, and does not keep its place.
func TestAReaderHangsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, hangUp := context.WithCancel(t.Context())
		waiters := consistency.NewWaiters(1, nil, notify.New(nil, "", "test", slog.New(slog.DiscardHandler)))
		r := consistency.NewReader(waiters)
		d, err := consistency.Request{Token: has{1, 1}.token(), Wait: time.Minute}.Requirement("video", func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		look := func(context.Context) (consistency.Freshness, error) { return consistency.Absent, nil }
		ask := func(context.Context) error { t.Error("the owner is asked without a caller"); return nil }
		ended := make(chan error, 1)
		go func() {
			_, err := r.Read(ctx, d, query{look, ask})
			ended <- err
		}()
		synctest.Wait()
		if _, err := r.Read(t.Context(), d, query{look, ask}); !errors.Is(err, consistency.ErrTooManyWaiters) {
			t.Errorf("while the only place is taken: %v", err)
		}
		hangUp()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		waiters.Drain()
		if outcome, err := r.Read(t.Context(), d, query{look, func(context.Context) error { return nil }}); err != nil || outcome != consistency.Authority {
			t.Errorf("in the place that is free: %s, %v", outcome, err)
		}
	})
}

// An owner that hangs costs the first few readers their whole time, and the others no
// time.
func TestTheCircuitIsOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := consistency.NewReader(consistency.NewWaiters(1, nil, notify.New(nil, "", "test", slog.New(slog.DiscardHandler))))
		d, err := consistency.Request{Token: has{1, 1}.token()}.Requirement("video", func(string) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		began := time.Now()
		for range 50 {
			_, err := r.Read(t.Context(), d, query{
				func(context.Context) (consistency.Freshness, error) { return consistency.Absent, nil },
				func(ctx context.Context) error {
					asked++
					<-ctx.Done()
					return errors.Join(consistency.ErrOwnerUnavailable, ctx.Err())
				},
			})
			if !errors.Is(err, consistency.ErrOwnerUnavailable) {
				t.Fatalf("%v", err)
			}
		}
		if asked != 5 || time.Since(began) != 5*consistency.FetchTimeout {
			t.Errorf("asked %d times, in %s", asked, time.Since(began))
		}
	})
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// atOnce bounds the behaviours that run at the same time. Nearly all of their
	// time is waiting; the real service allows a connection 100 streams.
	atOnce = 32
	// trialTime bounds one behaviour, and cleanupTime what it deletes afterwards.
	trialTime   = time.Minute
	cleanupTime = 10 * time.Second
)

// Outcome is what one behaviour came to.
type Outcome struct {
	Behaviour Behaviour
	// Err is nil if the server does as documented.
	Err error
	// Left says that the behaviour was left out as harmful.
	Left bool
	Took time.Duration
}

// Run tries the behaviours, many at once, and returns their outcomes in the same
// order. Harmful departures are left out. When ctx ends, so does the run, and
// what had not been tried has failed.
func Run(ctx context.Context, s *Subject, behaviours []Behaviour) []Outcome {
	outcomes := make([]Outcome, len(behaviours))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, b := range behaviours {
		g.Go(func() error {
			outcomes[i] = run(ctx, s, b)
			return nil
		})
	}
	_ = g.Wait() // an outcome carries its own error
	return outcomes
}

func run(ctx context.Context, s *Subject, b Behaviour) Outcome {
	if departure, listed := s.Departures[b.Name]; listed && departure.Harmful {
		return Outcome{Behaviour: b, Left: true}
	}
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	started := time.Now()
	t := s.trial(ctx)
	ended := make(chan struct{})
	go func() { // of its own, because a trial that fails ends its goroutine
		defer close(ended)
		defer t.cleanUp()
		b.try(t)
	}()
	<-ended
	return Outcome{Behaviour: b, Err: t.failure, Took: time.Since(started)}
}

// Unexpected says how the outcome differs from what the subject's list lets
// expect: the behaviour failed, or a listed departure is none. Nil: it does not.
func (o Outcome) Unexpected(s *Subject) error {
	departure, listed := s.Departures[o.Behaviour.Name]
	switch {
	case o.Err != nil && !listed:
		return fmt.Errorf("%w (documented at %s)", o.Err, o.Behaviour.Source)
	case o.Err == nil && !o.Left && listed && !departure.Sometimes:
		return fmt.Errorf("%s does this now, so take it off its list of departures (%s)", s.Name, departure.Why)
	default:
		return nil
	}
}

// trial begins a run of one behaviour.
func (s *Subject) trial(ctx context.Context) *trial {
	id := fmt.Sprintf("%s-%d", s.prefix, s.serial.Add(1))
	project := s.project
	if project == "" {
		project = id
	}
	return &trial{Subject: s, ctx: ctx, id: id, project: project}
}

// failf ends the trial: it does not return.
func (t *trial) failf(format string, args ...any) {
	t.failure = fmt.Errorf(format, args...)
	runtime.Goexit()
}

// cleanUp undoes, the latest first.
func (t *trial) cleanUp() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), cleanupTime)
	defer cancel()
	for _, undo := range slices.Backward(t.cleanups) {
		undo(ctx)
	}
	if t.failure == nil && t.ctx.Err() != nil {
		t.failure = errors.New("ended early")
	}
}

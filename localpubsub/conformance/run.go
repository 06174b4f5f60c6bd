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
	// atOnce is the maximum number of behaviours that run at the same time. A behaviour spends
	// nearly all its time waiting. The real service allows 100 streams for one connection.
	atOnce = 32
	// trialTime bounds the run of one behaviour.
	trialTime = time.Minute
	// cleanupTime bounds the deletion of a behaviour's resources after its run.
	cleanupTime = 10 * time.Second
)

// Outcome is the result of one behaviour.
type Outcome struct {
	Behaviour Behaviour
	// Err is nil if the server does as documented.
	Err error
	// If Left is true, the behaviour was not run, because its departure is harmful.
	Left bool
	Took time.Duration
}

// Run tests the behaviours and returns their outcomes in the same order. It tests many behaviours
// at the same time. It leaves out behaviours with a harmful departure. If ctx ends, the run ends,
// and the behaviours that are not tested by then have failed.
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
	go func() { // its own goroutine, because a failing trial ends it
		defer close(ended)
		defer t.cleanUp()
		b.try(t)
	}()
	<-ended
	return Outcome{Behaviour: b, Err: t.failure, Took: time.Since(started)}
}

// Unexpected returns an error if the outcome contradicts the subject's list of departures. There
// are two cases. A behaviour failed and has no listed departure, or a behaviour succeeded although
// its listed departure is not one that occurs only sometimes.
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

// failf ends the trial. It does not return.
func (t *trial) failf(format string, args ...any) {
	t.failure = fmt.Errorf(format, args...)
	runtime.Goexit()
}

// cleanUp undoes the trial's changes, the latest change first.
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

package scenario

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/internal/live"
)

const (
	// runTime bounds one scenario. The longest wait is 20 s, for the leases of a killed relay.
	runTime = 2 * time.Minute
	// maxSaid bounds a sentence on the page.
	maxSaid = 400
)

// errEnded is the cause of the end of the whole pair.
var errEnded = errors.New("the pair ends")

// Runner runs the scenarios of pressed buttons, one at a time, and shows the pair on a page.
type Runner struct {
	pair     *Pair
	page     *live.Page
	observer *observer

	mu       sync.Mutex
	running  string
	outcomes []live.Outcome
	seen     []live.Seen
}

// NewRunner returns a runner for page, which has the pair's buttons.
func NewRunner(p *Pair, page *live.Page) *Runner {
	return &Runner{pair: p, page: page, observer: &observer{pair: p}}
}

// Run returns when ctx ends and the last scenario has repaired what it broke. It does not repair
// parts that end with the pair.
func (r *Runner) Run(ctx context.Context) error {
	var all errgroup.Group
	all.Go(func() error { return r.page.Run(ctx, r.frame) })
	all.Go(func() error { r.observer.run(ctx, r.page); return nil })
	all.Go(func() error {
		for {
			select {
			case name := <-r.page.Presses():
				r.play(ctx, name)
			case <-ctx.Done():
				return nil
			}
		}
	})
	return all.Wait()
}

func (r *Runner) play(ctx context.Context, name string) {
	at := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if at < 0 {
		return
	}
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(errEnded) })()
	running, stop := context.WithTimeout(running, runTime)
	defer stop()
	t := &run{scenario: scenarios[at], runner: r, seen: map[string]string{}}
	r.note(live.Outcome{Name: name, Result: live.Running, Said: "It begins."})
	err := attempt(func() { t.do(r.pair, running, t) })
	switch {
	case context.Cause(running) != errEnded: //nolint:errorlint // a cause is the value itself
		err = errors.Join(err, t.repaired(context.WithoutCancel(ctx)))
	case t.needs == ourBroker:
		// The whole pair ends, so the scenario's repairs do not run. If another program has started
		// the broker, the broker runs on after that. So the broker's faults are removed here.
		err = errors.Join(err, r.pair.withoutFaults(context.WithoutCancel(ctx)))
	}
	if err != nil {
		r.note(live.Outcome{Name: name, Result: live.Broken, Said: oneLine(err.Error())})
		return
	}
	for promise, said := range t.seen {
		r.mark(live.Seen{ID: promise, Said: said, At: time.Now()})
	}
	r.note(live.Outcome{Name: name, Result: live.Held, Said: t.evidence()})
}

// oneLine returns an error as one sentence for the page.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxSaid {
		s = strings.ToValidUTF8(s[:maxSaid], "") + " …"
	}
	return s
}

// note replaces the outcome of a scenario.
func (r *Runner) note(o live.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = ""
	if o.Result == live.Running {
		r.running = o.Name
	}
	r.outcomes = slices.DeleteFunc(r.outcomes, func(old live.Outcome) bool { return old.Name == o.Name })
	r.outcomes = append(r.outcomes, o)
}

// mark replaces the evidence of a promise.
func (r *Runner) mark(s live.Seen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = slices.DeleteFunc(r.seen, func(old live.Seen) bool { return old.ID == s.ID })
	r.seen = append(r.seen, s)
}

func (r *Runner) frame() live.Frame {
	f := r.observer.frame()
	r.mu.Lock()
	defer r.mu.Unlock()
	f.Running, f.Outcomes, f.Seen = r.running, slices.Clone(r.outcomes), slices.Clone(r.seen)
	return f
}

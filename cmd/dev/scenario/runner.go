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
	// runTime bounds one scenario. The longest wait in a scenario is some 6 s, until a killed relay is taken over. If the
	// database keeps the killed process's session, it is 25 s, until the relay's leases end.
	runTime = 2 * time.Minute
	// maxSaid is the maximum length of a sentence on the page, in bytes.
	maxSaid = 400
)

// errEnded is the cause of the end of the whole pair.
var errEnded = errors.New("the pair ends")

// Runner runs the scenario of each pressed button, one at a time. It also shows the state of the
// pair on the page.
type Runner struct {
	pair     *Pair
	page     *live.Page
	observer *observer

	mu       sync.Mutex
	running  string
	outcomes []live.Outcome
	seen     []live.Seen
}

// NewRunner returns a runner for page. The buttons of page must be the buttons of p.
func NewRunner(p *Pair, page *live.Page) *Runner {
	return &Runner{pair: p, page: page, observer: &observer{pair: p}}
}

// Run runs scenarios until ctx ends. If a scenario has broken a part that outlives the pair, Run
// repairs that part before it returns.
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

// oneLine returns the text of an error on one line, cut to maxSaid bytes.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxSaid {
		s = strings.ToValidUTF8(s[:maxSaid], "") + " …"
	}
	return s
}

// note replaces the last outcome of the scenario.
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

// mark replaces the last evidence of the promise.
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

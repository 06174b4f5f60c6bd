package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// rebuilding is the rebuild that a command is about.
type rebuilding struct {
	*rebuild.Rebuild

	state rebuild.State
	need  rebuild.Need
}

// needs says how much free disk a rebuild needs.
func (b rebuilding) needs() string {
	return fmt.Sprintf("A rebuild needs %s of free disk: %s for the copy, %s for the write-ahead log.",
		megabytes(b.need.Total()), megabytes(b.need.Copy), megabytes(b.need.Log))
}

// rebuildResult is the plan and the result of a command.
type rebuildResult struct {
	DryRun bool           `json:"dry_run"`
	State  rebuild.State  `json:"state"`
	Need   rebuild.Need   `json:"disk_needed"`
	Rows   rebuild.Result `json:"rows"`
}

// act calls do if the plan is confirmed, and prints the result.
func (b rebuilding) act(ctx context.Context, s *invocation, do func(*rebuildResult) (text string, err error)) error {
	result := rebuildResult{State: b.state, Need: b.need}
	return s.act(&result, &result.DryRun, func() (text string, err error) {
		if text, err = do(&result); err == nil {
			result.State, err = b.State(ctx)
		}
		return text, err
	})
}

// phases is the rebuild.Observer that shows the progress.
type phases struct {
	bar   progress
	grace time.Duration // of the comparisons
	phase rebuild.Phase // of the bar; None before the first one
}

// Begin ends the previous bar, if any, and begins a new one.
func (p *phases) Begin(phase rebuild.Phase, aggregateType string, total int64) {
	p.end(nil)
	p.phase = phase
	p.bar.begin(fmt.Sprintf("%s %s", phase, aggregateType), total)
}

// Passed moves the bar.
func (p *phases) Passed(rows int64) { p.bar.add(rows) }

// Left names the row in the log.
func (p *phases) Left(aggregateType, id string, kind reconcile.Kind) {
	p.bar.sayf("%s %s is left: %s", aggregateType, id, kind)
}

// Waits says that the comparison waits, and for how many rows.
func (p *phases) Waits(aggregateType string, rows int) { p.bar.waits(aggregateType, rows, p.grace) }

// Retries says that the comparison goes on after an error.
func (p *phases) Retries(aggregateType string, err error) {
	p.bar.sayf("%s: %v, trying again", aggregateType, err)
}

func (p *phases) end(failed error) {
	if p.phase != rebuild.None {
		p.bar.end(failed)
	}
}

// explain adds a hint for the operator to the refusal rebuild.ErrLosses. The refusal may mean that
// the owner is the wrong owner. In the phase comparing, rows of the wrong owner are in the copy
// that is not served. In the phase checking, the wrong owner has changed nothing.
func (p *phases) explain(err error) error {
	switch {
	case !errors.Is(err, rebuild.ErrLosses):
		return err
	case p.phase == rebuild.Checking:
		return fmt.Errorf("%w: with the right owner, run it with --accept-losses; else run it again with the right one", err)
	}
	return fmt.Errorf("%w: with the right owner, run it with --accept-losses; else finish, and begin again with the right one", err)
}

// megabytes is a size as Postgres shows it.
func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+1<<20-1)>>20) }

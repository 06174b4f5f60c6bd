package operator

import (
	"context"
	"fmt"
	"io"

	"example.com/lockstep/pkg/eventing/rebuild"
)

// rebuilding is the rebuild that a command is about.
type rebuilding struct {
	*rebuild.Rebuild

	state rebuild.State
	need  rebuild.Need
}

// needs says what a rebuild takes.
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

// act does it if that is confirmed, and prints the result.
func (b rebuilding) act(
	ctx context.Context, s *invocation, do func(*rebuildResult) error, text func(io.Writer, rebuildResult),
) (err error) {
	result := rebuildResult{State: b.state, Need: b.need}
	if result.DryRun = !s.confirmed(); !result.DryRun {
		if err := do(&result); err != nil {
			return err
		}
		if result.State, err = b.State(ctx); err != nil {
			return err
		}
	}
	return s.print(result, func(w io.Writer) {
		if result.DryRun {
			fmt.Fprint(w, unchanged)
		} else {
			text(w, result)
		}
	})
}

// phases is the rebuild.Observer that shows the progress.
type phases struct {
	bar   progress
	begun bool
}

// Begin ends the bar before.
func (p *phases) Begin(phase rebuild.Phase, aggregateType string, total int64) {
	p.end(nil)
	p.begun = true
	p.bar.begin(fmt.Sprintf("%s %s", phase, aggregateType), total)
}

// Passed moves the bar.
func (p *phases) Passed(rows int64) { p.bar.add(rows) }

func (p *phases) end(failed error) {
	if p.begun {
		p.bar.end(failed)
	}
}

// megabytes is a size as Postgres shows it.
func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+1<<20-1)>>20) }

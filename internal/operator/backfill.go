package operator

import (
	"context"
	"errors"
	"fmt"
	"io"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/backfill"
)

// backfillRate is the default rate, in rows per second. It keeps the load on the owner and on the
// read model far below the load of serving.
const backfillRate = 2000

func (m ReadModel) backfill(ctx context.Context, s *invocation) error {
	var only string
	var o backfill.Options
	s.flags.StringVar(&only, "type", "", "")
	s.flags.IntVar(&o.Rate, "rate", backfillRate, "")
	s.flags.BoolVar(&o.Restart, "restart", false, "")
	if err := s.parse(0); err != nil {
		return err
	}
	if o.Rate < 0 {
		return command.Usagef("--rate must not be negative")
	}
	if err := s.connect(ctx, needs{owner: m.OwnerVariable}); err != nil {
		return err
	}
	fillers, err := ofType(m.Projections(s.db, s.owner).Fillers(), only)
	if err != nil {
		return err
	}
	var result struct {
		Backfills []backfill.State `json:"backfills"`
	}
	var failed error
	for _, f := range fillers {
		state, err := s.backfill(ctx, f, o)
		result.Backfills = append(result.Backfills, state)
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	err = s.print(result, func(w io.Writer) {
		for _, state := range result.Backfills {
			fmt.Fprintln(w, backfilled(state))
		}
	})
	return errors.Join(failed, err)
}

// backfill runs one backfill, and shows its progress.
func (s *invocation) backfill(ctx context.Context, f backfill.Filler, o backfill.Options) (backfill.State, error) {
	bar := s.progress()
	started := false
	state, err := backfill.Run(ctx, s.db, f, o, func(now backfill.State) {
		if now.Err != nil {
			bar.sayf("%s: %v, trying again", now.Type, now.Err)
			return
		}
		if !started {
			started = true
			bar.begin(now.Type, 0)
		}
		bar.total = now.Estimate
		bar.add(now.RowsRead - bar.done)
	})
	switch {
	case started:
		bar.end(err)
	case err == nil:
		bar.sayf("%s: nothing is done, since an earlier backfill has finished (--restart begins again)", state.Type)
	}
	if state.RowsFailed > 0 {
		err = errors.Join(err, fmt.Errorf("%s: %d rows could not be written: their lines above, with \"owner's row cannot be written\", "+
			"have the ids and the errors", state.Type, state.RowsFailed))
	}
	return state, err
}

// backfilled says how far a backfill has come.
func backfilled(s backfill.State) string {
	line := fmt.Sprintf("%s: %d rows read, %d written", s.Type, s.RowsRead, s.RowsWritten)
	if s.RowsFailed > 0 {
		line += fmt.Sprintf(", %d failed", s.RowsFailed)
	}
	switch {
	case s.FinishedAt != nil:
		return line + ", finished at " + stamp(*s.FinishedAt) + " (--restart begins again)."
	case s.StartedAt != nil:
		return line + ", started at " + stamp(*s.StartedAt) + " and not finished: run it again to continue."
	}
	return line + ", not started."
}

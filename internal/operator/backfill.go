package operator

import (
	"context"
	"errors"
	"fmt"
	"io"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/backfill"
)

const backfillUsage = `backfill builds the read model from its owner's rows, page by page, while events flow.

usage: backfill [flags]

flags:
  --type TYPE         only this type of aggregate, such as video
  --rate N            at most N rows per second (2000); 0 is no limit
  --restart           begin with the first page, also after one that has finished or was cut off
  --json              one JSON object on stdout

Reads, writes and events go on meanwhile. The result is the same in whatever order pages
and events are written: for each row, under its lock, the higher (epoch, version) stays, and
tombstones are rows. So a backfill may be repeated, and cannot take a row back. It waits
for no lock longer than a moment, so that it delays no event.

Create the subscription first: an event from before there is a subscription never arrives,
and its change must be in a row that is read afterwards. A row that the owner does not have,
or has in a lower version, stays: catalog reconcile finds it.

The progress is saved with each page. A backfill that was cut off continues there; one whose
process was killed does so half a minute later. Of two backfills of one type the second is
refused. One that has finished says when. The owner and the database may be away for half a
minute; each attempt that fails is said.

A row that the table refuses, or that cannot be read, is left, with a line that has its id
and the error, and the command ends with 1. Correct the row; then catalog reconcile --repair
writes it. After 1,000 such rows it ends at once; run it again, and it goes on behind them.

environment: DATABASE_URL, VIDEO_SERVICE_ADDR as of serve

exit codes: 0 done, 1 failed or refused, or a row was left, 2 wrong usage
`

// backfillRate keeps the load on either side far below that of serving.
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

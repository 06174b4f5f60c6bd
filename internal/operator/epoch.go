package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
)

const epochUsage = `epoch shows the lives of the service's database, and begins a new one.

usage: epoch COMMAND [flags]

commands:
  show                the present epoch, and those before it
  bump                begin an epoch, after the database was restored to an earlier time
                      and before the service runs again
    --yes               do it; without, and without a terminal to ask at, only show it
  help                print this

flags of all:
  --json              one JSON object on stdout
flags of bump, for the table of epochs:
  --by NAME           who does it ($USER, through sudo $SUDO_USER); a job needs it
  --why TEXT          why; required to act

A restored service assigns versions that it had assigned before the restore, to other
changes. Events, consistency tokens and read models compare (epoch, version), so that in a
new epoch every version is above all of before. A consistency token of a lost write is then
answered with the state after the restore. An epoch cannot be taken back.

environment:
  DATABASE_URL        Postgres, as the service's own role

exit codes: 0 done, 1 failed, 2 wrong usage
`

func showEpochs(ctx context.Context, s *invocation) error {
	b, err := s.backlog(ctx, 0)
	if err != nil {
		return err
	}
	epochs, err := b.Epochs(ctx)
	if err != nil {
		return err
	}
	return s.print(map[string]any{"epoch": epochs[0].Epoch, "epochs": epochs}, func(w io.Writer) {
		fmt.Fprintln(w, "EPOCH\tBEGAN AT\tBY\tWHY")
		for _, e := range epochs {
			fmt.Fprintf(w, "%d\t%s\t%s (role %s)\t%s\n", e.Epoch, stamp(e.BeganAt), e.By, e.DatabaseRole, oneLine(cmp.Or(e.Why, "no reason given")))
		}
	})
}

func bumpEpoch(ctx context.Context, s *invocation) error {
	s.confirmFlags()
	b, err := s.backlog(ctx, 0)
	if err != nil {
		return err
	}
	epochs, err := b.Epochs(ctx)
	if err != nil {
		return err
	}
	result := struct {
		DryRun bool  `json:"dry_run"`
		Before int64 `json:"epoch_before"`
		Epoch  int64 `json:"epoch"`
	}{Before: epochs[0].Epoch, Epoch: epochs[0].Epoch}
	s.planf("The epoch is %d, since %s. A new one puts every later version above all of before, and cannot be taken back.",
		result.Before, stamp(epochs[0].BeganAt))
	return s.act(&result, &result.DryRun, func() (string, error) {
		begun, err := b.BeginEpoch(ctx, s.actor)
		result.Epoch = begun.Epoch
		return fmt.Sprintf("The epoch is %d.\n", begun.Epoch), err
	})
}

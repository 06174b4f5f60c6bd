package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
)

func showEpochs(ctx context.Context, s *invocation) error {
	b, err := s.backlog(ctx)
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
	b, err := s.backlog(ctx)
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

package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"

	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/backlog"
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
	var after *int64 // a pointer, because 0 is an epoch that does not exist, and must be refused
	s.flags.Func("after", "", func(text string) error {
		n, err := strconv.ParseInt(text, 10, 64)
		after = &n
		return err
	})
	s.confirmFlags()
	b, err := s.backlog(ctx)
	if err != nil {
		return err
	}
	epochs, err := b.Epochs(ctx)
	if err != nil {
		return err
	}
	present, begin := epochs[0], b.BeginEpoch
	result := struct {
		DryRun bool  `json:"dry_run"`
		Before int64 `json:"epoch_before"`
		Epoch  int64 `json:"epoch"`
	}{!s.yes, present.Epoch, present.Epoch}
	if after != nil {
		result.Before = *after
		begun, err := backlog.After(epochs, *after)
		if err != nil {
			return err
		}
		if begun.Epoch > 0 {
			return s.print(result, func(w io.Writer) {
				fmt.Fprintf(w, "The epoch is %d already, since %s, begun by %s. Nothing was changed.\n", begun.Epoch, stamp(begun.BeganAt), begun.By)
			})
		}
		begin = func(ctx context.Context, o audit.Actor) (backlog.Epoch, error) {
			return b.BeginEpochAfter(ctx, o, *after)
		}
	}
	s.planf("The epoch is %d, since %s. A new one puts every later version above all of before, and cannot be taken back. "+
		"With --after %d a repetition of the command begins no second one.", present.Epoch, stamp(present.BeganAt), present.Epoch)
	return s.act(&result, &result.DryRun, func() (string, error) {
		begun, err := begin(ctx, s.actor)
		result.Epoch = begun.Epoch
		return fmt.Sprintf("The epoch is %d.\n", begun.Epoch), err
	})
}

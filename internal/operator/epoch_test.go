package operator

import (
	"strings"
	"testing"
)

func TestEpoch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	type plan struct {
		DryRun bool  `json:"dry_run"`
		Before int64 `json:"epoch_before"`
		Epoch  int64
	}
	var dry, done plan
	b.json(t, 0, "epoch bump --why restored", &dry)
	if dry != (plan{true, 1, 1}) {
		t.Errorf("the plan is %+v", dry)
	}
	if stdout, _ := b.run(t, 0, "epoch bump"); !strings.Contains(stdout, "The epoch is 1,") || !strings.Contains(stdout, unchanged) {
		t.Errorf("the plan says %q", stdout)
	}
	b.json(t, 0, "epoch bump --why restored --yes", &done)
	if done.DryRun || done.Before != 1 || done.Epoch <= 1 {
		t.Errorf("a new epoch: %+v", done)
	}
	var shown struct {
		Epoch  int64
		Epochs []struct {
			Epoch   int64
			By, Why string
		}
	}
	b.json(t, 0, "epoch show", &shown)
	if shown.Epoch != done.Epoch || len(shown.Epochs) != 2 || shown.Epochs[0].By != "ada" || shown.Epochs[0].Why != "restored" || shown.Epochs[1].Epoch != 1 {
		t.Errorf("epochs: %+v", shown)
	}
	if stdout, _ := b.run(t, 0, "epoch bump --yes --why again"); !strings.Contains(stdout, "The epoch is") {
		t.Errorf("the next epoch: %q", stdout)
	}
	if stdout, _ := b.run(t, 0, "epoch show"); !strings.Contains(stdout, "again") || strings.Count(stdout, "\n") != 4 {
		t.Errorf("epochs:\n%s", stdout)
	}
}

// The command was cut off after its COMMIT. Its repetition names the epoch of before, and begins no second one. Without that name
// it begins one more.
func TestARepeatedBumpBeginsOneEpoch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var first, again, dry struct {
		DryRun bool  `json:"dry_run"`
		Before int64 `json:"epoch_before"`
		Epoch  int64
	}
	b.json(t, 0, "epoch bump --yes --why restored --after 1", &first)
	b.json(t, 0, "epoch bump --yes --why restored --after 1", &again)
	if first.Epoch <= 1 || first.Before != 1 || again != first {
		t.Errorf("%+v, and then %+v", first, again)
	}
	b.json(t, 0, "epoch bump --after 1", &dry)
	if !dry.DryRun || dry.Epoch != first.Epoch {
		t.Errorf("the plan: %+v", dry)
	}
	if stdout, _ := b.run(t, 0, "epoch bump --yes --why restored --after 1"); !strings.Contains(stdout, "already") || !strings.Contains(stdout, "by ada") {
		t.Errorf("the repetition says %q", stdout)
	}
	if stdout, _ := b.run(t, 0, "epoch show"); strings.Count(stdout, "\n") != 3 {
		t.Errorf("epochs:\n%s", stdout)
	}
	b.run(t, 0, "epoch bump --yes --why restored")
	for _, after := range []string{"1", "7", "-1", "0"} { // two epochs ago, and none
		if _, stderr := b.run(t, 1, "epoch bump --yes --why restored --after "+after); !strings.Contains(stderr, "another present epoch") {
			t.Errorf("after %s: %q", after, stderr)
		}
	}
}

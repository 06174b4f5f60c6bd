package services_test

import (
	"strings"
	"testing"
)

// TestRebuildFromTheWrongOwner rebuilds from an owner without rows: nothing is switched, until
// an operator accepts that. A rebuild that is done is no rebuild to run again.
func TestRebuildFromTheWrongOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.seed(t, 200, 20)
	w.exec(t, `TRUNCATE video.videos, video.engagements`)
	const run = `catalog rebuild run --disk-free "40 GB" --grace 1s --yes --why test`
	live := func() int64 {
		return query[int64](t, w, `SELECT count(*) FROM catalog.video_projection WHERE deleted_at IS NULL`)[0]
	}
	before := live()
	for _, step := range []struct {
		command, says string
		code          int
		phase         string
	}{
		{"catalog rebuild finish", "there is nothing to remove", 1, ""},
		{"catalog rebuild rollback", "the tables were not exchanged", 1, ""},
		{run, "--accept-losses", 1, "comparing"},
		{"catalog rebuild finish", "it is given up", 0, "comparing"},
		{"catalog rebuild finish --yes --why test", "given up", 0, ""},
		{run, "the owner may be the wrong one", 1, "comparing"},
		{run + " --accept-losses", "The new copy is served", 0, "done"},
		{run, "is done: finish it to begin another", 1, "done"},
		{"catalog rebuild finish --unchecked --yes --why test", "finished", 0, ""},
	} {
		if n := live(); n != before && step.code == 1 && step.phase == "comparing" {
			t.Fatalf("%d of %d videos are left before %s", n, before, step.command)
		}
		cmd := o.shell(t, step.command, "NOTHING=")
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != step.code || !strings.Contains(string(out), step.says) {
			t.Fatalf("%s: %v %s", step.command, err, out)
		}
		if s := o.rebuildState(t); s.Phase != step.phase {
			t.Fatalf("%s: the rebuild is %q, want %q", step.command, s.Phase, step.phase)
		}
	}
	if n := live(); n != 0 {
		t.Errorf("%d videos after accepting the loss", n)
	}
}

// TestARebuildThatLeavesARow ends with 1, and names the row: no repair before an epoch of video
// changes it.
func TestARebuildThatLeavesARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	w.startVideo(t)
	w.seed(t, 50, 5)
	w.exec(t, `UPDATE catalog.video_projection SET epoch = 9, updated_at = now() - interval '1 h'
		WHERE video_id = (SELECT min(video_id::text)::uuid FROM catalog.video_projection)`)
	cmd := o.shell(t, `catalog rebuild run --disk-free "40 GB" --grace 1s --yes --why test`, "NOTHING=")
	out, err := cmd.CombinedOutput()
	said := string(out)
	if cmd.ProcessState.ExitCode() != 1 || strings.Count(said, "is left: ahead") != 1 || !strings.Contains(said, "1 rows of the new copy differ") {
		t.Errorf("%v %s", err, said)
	}
	if s := o.rebuildState(t); s.Phase != "done" {
		t.Errorf("the rebuild is %q", s.Phase)
	}
}

package rig

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"example.com/lockstep/lab/bench/measure"
)

func TestOnlyAMissingProcLeavesMemoryOut(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has /proc")
	}
	if mb, err := RSS(os.Getpid()); err != nil || mb <= 0 {
		t.Errorf("RSS of this process = %v, %v; want a positive number", mb, err)
	}
	if _, err := RSS(0); err == nil || errors.Is(err, measure.ErrMissing) { // no process has this id
		t.Errorf("RSS of no process = %v, want an error that leaves nothing out", err)
	}
}

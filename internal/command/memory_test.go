package command

import (
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// It sets the process's limit, so it must not run in parallel with other tests.
func TestTheCollectorKnowsTheContainersMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	unlimited := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	broken := func() (uint64, error) { return 0, errors.New("no cgroup") }
	for name, tc := range map[string]struct {
		variable  string
		container memlimit.Provider
		want      int64
	}{
		"a container of 512 MiB": {"", memlimit.Limit(512 << 20), 512 << 20 * 9 / 10},
		"the variable wins":      {"1GiB", memlimit.Limit(512 << 20), 7 << 20},
		"no limit":               {"", unlimited, math.MaxInt64},
		"no cgroup":              {"", broken, 7 << 20},
	} {
		t.Setenv("GOMEMLIMIT", tc.variable) // which also restores it
		if tc.variable == "" {
			if err := os.Unsetenv("GOMEMLIMIT"); err != nil {
				t.Fatal(err)
			}
		}
		debug.SetMemoryLimit(7 << 20) // as the runtime took it from the variable
		limitMemory(t.Context(), slog.New(slog.DiscardHandler), tc.container)
		if got := debug.SetMemoryLimit(-1); got != tc.want {
			t.Errorf("%s: the limit is %d, want %d", name, got, tc.want)
		}
	}
}

package reconcile_test

import (
	"testing"

	"example.com/lockstep/pkg/eventing/reconcile"
)

func TestDoubtful(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		losses      int
		owned, read int64
		want        bool
	}{
		"none of none":             {0, 0, 0, false},
		"an owner without rows":    {1, 0, 0, true},
		"few":                      {100, 1, 1, false},
		"more than few":            {101, 1, 1, true},
		"a share of many":          {5000, 100_000, 100_000, false},
		"more than a share":        {5001, 100_000, 100_000, true},
		"an empty read model":      {0, 100_000, 0, false},
		"all that is read":         {40_000, 1_000_000, 40_000, true},
		"all of a large one's few": {100, 100, 100, false},
	} {
		if got := reconcile.Doubtful(tc.losses, tc.owned, tc.read); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, kind := range reconcile.Kinds() {
		if want := kind == reconcile.Extra || kind == reconcile.Ahead; kind.Lost() != want {
			t.Errorf("%s: %v", kind, kind.Lost())
		}
	}
}

package operator

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// A refusal says what to do in its phase: the wrong owner's rows are in the copy before the
// switch only.
func TestARefusalNamesTheWayOn(t *testing.T) {
	t.Parallel()
	for phase, want := range map[rebuild.Phase]string{
		rebuild.Comparing: "finish, and begin again with the right one", rebuild.Checking: "run it again with the right one",
	} {
		var said strings.Builder
		p := phases{bar: progress{to: &said}}
		p.Begin(rebuild.Filling, "video", 1)
		p.Begin(phase, "video", 1)
		if err := p.explain(fmt.Errorf("video: %w", rebuild.ErrLosses)); !errors.Is(err, rebuild.ErrLosses) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", phase, err)
		}
		if err := p.explain(rebuild.ErrBusy); !errors.Is(err, rebuild.ErrBusy) || strings.Contains(err.Error(), "owner") {
			t.Errorf("%s: %v", phase, err)
		}
	}
}

// A row that is left has a line with its id and its kind, in a log too.
func TestALeftRowIsNamed(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	p := phases{bar: progress{to: &said}}
	p.Left("video", "018f", reconcile.Ahead)
	if said.String() != "video 018f is left: ahead\n" {
		t.Errorf("%q", said.String())
	}
}

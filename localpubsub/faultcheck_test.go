package localpubsub_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"example.com/lockstep/localpubsub"
)

func TestFaultsAreChecked(t *testing.T) {
	t.Parallel()
	w := plain(t)
	for _, test := range []struct {
		field string
		fault localpubsub.Fault
	}{
		{"kind", localpubsub.Fault{Kind: "flood"}},
		{"delay", localpubsub.Fault{Kind: localpubsub.Latency}},
		{"key", localpubsub.Fault{Kind: localpubsub.Reject}},
		{"rate", localpubsub.Fault{Kind: localpubsub.Slow}},
		{"probability", localpubsub.Fault{Kind: localpubsub.Outage, Probability: 1.5}},
		{"times", localpubsub.Fault{Kind: localpubsub.Outage, Times: -1}},
		{"method", localpubsub.Fault{Kind: localpubsub.Outage, Method: "publish"}},
		{"method", localpubsub.Fault{Kind: localpubsub.Outage, Method: "Publsh"}},
		{"method", localpubsub.Fault{Kind: localpubsub.Throttle, Method: "StreamingPull"}},
		{"method", localpubsub.Fault{Kind: localpubsub.Repeat, Method: "Pull"}},
		{"method", localpubsub.Fault{Kind: localpubsub.Reset, Method: "Publish"}},
		{"method", localpubsub.Fault{Kind: localpubsub.AckLost, Method: "Acknowledge"}},
	} {
		err := w.SetFaults(1, localpubsub.Fault{Kind: localpubsub.Outage}, test.fault)
		if err == nil || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%+v: %v, want an error that names %s", test.fault, err, test.field)
		}
	}
	if got := w.try(""); got != codes.OK {
		t.Errorf("a refused setting took effect: %s", got)
	}
}

func TestFaultsOfOneMethod(t *testing.T) {
	t.Parallel()
	w := plain(t)
	w.faults(
		localpubsub.Fault{Kind: localpubsub.Outage, Method: "StreamingPull"},
		localpubsub.Fault{Kind: localpubsub.Reset, Method: "StreamingPull"},
		localpubsub.Fault{Kind: localpubsub.Late, Method: "SetIamPolicy", Delay: 1},
		localpubsub.Fault{Kind: localpubsub.Throttle, Method: "CreateSchema"},
		localpubsub.Fault{Kind: localpubsub.Repeat, Method: "Publish"},
		localpubsub.Fault{Kind: localpubsub.Reject, Method: "Publish", Key: "A"},
	)
}

// The caller may use its slice again.
func TestFaultsAreCopied(t *testing.T) {
	t.Parallel()
	w := plain(t)
	faults := []localpubsub.Fault{{Kind: localpubsub.Outage, Method: "Acknowledge"}}
	w.faults(faults...)
	faults[0].Method = "Publish"
	if got := w.try(""); got != codes.OK {
		t.Errorf("publish = %s after a change of the caller's slice", got)
	}
}

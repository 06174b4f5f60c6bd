package consistency

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

// TestEveryCircuit tries calls that begin and end in each order, with each result, and pauses. While the
// circuit is open it lets one call at a time through. Once the calls have ended and the longest pause is over,
// it lets a call through, and closes if that succeeds.
func TestEveryCircuit(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	const most = 12 // steps
	for queue := [][]string{nil}; len(queue) > 0; queue = queue[1:] {
		steps := queue[0]
		var state string
		var next []string
		synctest.Test(t, func(t *testing.T) {
			w := &circuitWorld{t: t, circuit: newCircuit(10, time.Hour), took: steps}
			for _, step := range steps {
				w.take(step)
			}
			if state = w.String(); !known[state] {
				next = w.steps()
			}
			w.finish()
		})
		for _, step := range next {
			if len(steps) < most {
				queue = append(queue, append(slices.Clip(steps), step))
			}
		}
		known[state] = true
	}
	t.Logf("%d states", len(known))
}

// circuitWorld is a circuit and its calls under way. A call ends with its result.
type circuitWorld struct {
	t       *testing.T
	circuit *circuit
	calls   []*circuitCall
	took    []string
}

func (w *circuitWorld) broken(why string) { w.t.Errorf("%s:\n%s", why, strings.Join(w.took, "\n")) }

type circuitCall struct {
	end    chan error
	cancel context.CancelFunc
	// begun says that the circuit was open when the call began, and probe that it has not closed since.
	begun, probe bool
}

func (w *circuitWorld) open() bool { return w.circuit.failures >= openAfter }

// begin begins a call, and reports whether it was let through.
func (w *circuitWorld) begin() bool {
	ctx, cancel := context.WithCancel(w.t.Context())
	call := &circuitCall{end: make(chan error), cancel: cancel}
	open, through := w.open(), false
	go func() {
		_ = w.circuit.do(ctx, func(context.Context) error { through = true; return <-call.end }, away)
	}()
	synctest.Wait()
	if !through {
		cancel()
		return false
	}
	if open {
		if slices.ContainsFunc(w.calls, func(other *circuitCall) bool { return other.probe }) {
			w.broken("two probes at once")
		}
		call.begun, call.probe = true, true
	}
	w.calls = append(w.calls, call)
	return true
}

func (w *circuitWorld) end(i int, err error) {
	call := w.calls[i]
	w.calls = slices.Delete(w.calls, i, i+1)
	call.end <- err
	synctest.Wait()
	call.cancel()
	if !w.open() { // the calls that are under way now are no probes of the next time
		for _, other := range w.calls {
			other.probe = false
		}
	}
}

func (w *circuitWorld) steps() (all []string) {
	if len(w.calls) < 3 {
		all = append(all, "begin")
	}
	for i := range w.calls {
		for _, how := range []string{"well", "away", "cancelled"} {
			all = append(all, fmt.Sprint(how, " ", i))
		}
	}
	if !w.open() {
		all = append(all, "fails in a row")
	}
	return append(all, "pass")
}

func (w *circuitWorld) take(step string) {
	how, i := step, 0
	_, _ = fmt.Sscan(step, &how, &i)
	switch how {
	case "begin":
		w.begin()
	case "fails":
		for !w.open() && w.begin() {
			w.end(len(w.calls)-1, errAway)
		}
	case "well":
		w.end(i, nil)
	case "away":
		w.end(i, errAway)
	case "cancelled":
		w.calls[i].cancel()
		w.end(i, errAway)
	case "pass":
		backoff.Sleep(w.t.Context(), 2*pauses.Cap, nil)
	}
}

func (w *circuitWorld) finish() {
	for len(w.calls) > 0 {
		w.calls[0].cancel()
		w.end(0, nil)
	}
	backoff.Sleep(w.t.Context(), 2*pauses.Cap, nil)
	if !w.begin() {
		w.broken("the circuit stays open")
		return
	}
	w.end(0, nil)
	if w.open() || w.circuit.probing != 0 {
		w.broken("a success does not close the circuit")
	}
}

func (w *circuitWorld) String() string {
	s := fmt.Sprint(w.circuit.failures, w.circuit.trips, w.circuit.probing != 0, time.Now().Before(w.circuit.until))
	for _, call := range w.calls {
		s += fmt.Sprint(" ", call.begun, call.probe)
	}
	return s
}

package localpubsub

import (
	"math"
	"sync/atomic"
	"time"
)

// plan holds the faults of one call of SetFaults. The next call replaces the whole plan.
type plan struct {
	seed   uint64
	faults []Fault
	asked  []atomic.Uint64 // opportunities so far, by fault
	struck []atomic.Int64
}

// strikes returns the first fault of the kind that strikes now, and reports whether there is one.
func (p *plan) strikes(kind Kind, method string) (Fault, bool) {
	for i, f := range p.faults {
		if f.Kind == kind && (f.Method == "" || f.Method == method || method == "") && p.draw(i, p.asked[i].Add(1)) {
			return f, true
		}
	}
	return Fault{}, false
}

// draw decides whether fault i strikes at its n-th opportunity.
func (p *plan) draw(i int, n uint64) bool {
	f := p.faults[i]
	if f.Probability != 0 && uniform(p.seed, uint64(i), n) >= f.Probability {
		return false
	}
	return f.Times == 0 || p.struck[i].Add(1) <= f.Times
}

// wait draws the duration of a fault's wait.
func (p *plan) wait(f Fault) time.Duration {
	const longest = 10
	n := uint64(0)
	for i := range p.asked {
		n += p.asked[i].Load()
	}
	tail := min(-math.Log(1-uniform(p.seed, math.MaxUint64, n)), longest)
	return time.Duration(f.Delay) + time.Duration(tail*float64(f.Mean))
}

// losesAck decides whether one request with acknowledgements is lost.
func (f *faults) losesAck() bool {
	_, strikes := f.current.Load().strikes(AckLost, "")
	return strikes
}

// resend decides whether an acknowledged message is delivered again.
func (f *faults) resend(e *entry) bool {
	p := f.current.Load()
	for i, fault := range p.faults {
		if fault.Kind == Resend && p.draw(i, e.serial) {
			return true
		}
	}
	return false
}

// reorder calls promote if a Reorder fault strikes. promote moves one of the n waiting elements to
// the front.
func (f *faults) reorder(n int, promote func(int)) {
	p := f.current.Load()
	for i, fault := range p.faults {
		if fault.Kind != Reorder || n < 2 {
			continue
		}
		if drawn := p.asked[i].Add(1); p.draw(i, drawn) {
			promote(int(mix(p.seed+drawn) % uint64(n)))
		}
	}
}

// uniform returns a pseudorandom number from 0 up to 1. The number depends only on the arguments.
func uniform(seed, which, n uint64) float64 {
	return float64(mix(mix(seed^mix(which))+n)>>11) / (1 << 53)
}

// mix is the finaliser of splitmix64 (Steele, Lea, Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Package measure takes the turns. A series is a set of measurements that are taken
// in turns, A B C A B C, so that whatever disturbs the machine disturbs all of them.
// Each figure is the median of its runs. A figure that is a ratio is computed
// within each turn, from neighbours in time, and is the median of that.
package measure

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"example.com/lockstep/cmd/bench/report"
)

// A Size says how much of everything is done.
type Size int

// Quick does a little of everything, to see whether it runs; Normal is what docs
// and people look at; Full has the large tables, too.
const (
	Quick Size = iota
	Normal
	Full
)

// runs is how many turns a series takes that does not say so itself.
func (s Size) runs() int { return [...]int{Quick: 1, Normal: 3, Full: 5}[s] }

// A Series is a set of measurements that are taken in turns.
type Series struct {
	Title        string
	From         Size // the smallest size that it is part of
	Runs         int  // turns; 0: as many as the size says
	Measurements []Measurement
	Derived      []Derived
}

// A Measurement is one side of a series. Its figures depend on nothing that an
// earlier run has left behind, on this side or another.
type Measurement struct {
	Figures []Figure
	Run     Run
}

// A Run takes a measurement once. It has three minutes, also when what it measures
// is slow. An error that wraps [ErrMissing] leaves the measurement out; any other
// one is a failure.
type Run func(context.Context, Size) (Reading, error)

// A Figure is a number with a name, by which programs and documents know it.
type Figure struct {
	Name, Unit string
	Note       string // what a reader of the number must know
}

// A Reading is what one run of a measurement has found: a positive value for each
// of its figures, and whatever else there is to say about this run.
type Reading struct {
	Values []float64
	Note   string
}

// Sampled is a reading of n samples, and says so.
func Sampled(n int, values ...float64) Reading {
	return Reading{values, fmt.Sprintf("%d samples a run", n)}
}

// Single makes the run of a measurement with one figure; once gets what the volumes
// say for its size.
func Single[V any](volumes [Full + 1]V, once func(context.Context, V) (float64, error)) Run {
	return func(ctx context.Context, size Size) (Reading, error) {
		v, err := once(ctx, volumes[size])
		return Reading{Values: []float64{v}}, err
	}
}

// A Derived figure is computed in each turn from other figures of its series.
type Derived struct {
	Figure

	RatioTo string // what it is a ratio to; empty when it is none
	From    []string
	Compute func(in []float64) float64 // in is parallel to from
}

// Ratio derives how many times to goes into of.
func Ratio(name, of, to, note string) Derived {
	return Derived{
		Figure: Figure{Name: name, Unit: "x", Note: note}, RatioTo: to,
		From:    []string{of, to},
		Compute: func(in []float64) float64 { return in[0] / in[1] },
	}
}

// ErrMissing says that this machine lacks what a measurement needs.
var ErrMissing = errors.New("left out")

// only returns what it takes to know the figures that match. It is empty when
// none does.
func (s Series) only(match *regexp.Regexp) Series {
	wanted := make(map[string]bool)
	for _, f := range s.Figures() {
		wanted[f.Name] = match.MatchString(f.Name)
	}
	// A derived figure stands behind those that it is computed from.
	for _, d := range slices.Backward(s.Derived) {
		for _, name := range d.From {
			wanted[name] = wanted[name] || wanted[d.Name]
		}
	}
	s.Measurements = slices.DeleteFunc(slices.Clone(s.Measurements), func(m Measurement) bool {
		return !slices.ContainsFunc(m.Figures, func(f Figure) bool { return wanted[f.Name] })
	})
	s.Derived = slices.DeleteFunc(slices.Clone(s.Derived), func(d Derived) bool { return !wanted[d.Name] })
	return s
}

// Figures returns a result without a value for each figure, in order.
func (s Series) Figures() (results []report.Result) {
	for _, m := range s.Measurements {
		for _, f := range m.Figures {
			results = append(results, report.Result{Name: f.Name, Unit: f.Unit, Note: f.Note})
		}
	}
	for _, d := range s.Derived {
		results = append(results, report.Result{Name: d.Name, Unit: d.Unit, RatioTo: d.RatioTo, Note: d.Note})
	}
	return results
}

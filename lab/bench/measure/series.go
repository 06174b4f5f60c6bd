// Package measure takes the measurements in turns. A series is a set of
// measurements that are taken in turns, A B C A B C, so that a disturbance of
// the machine affects all of them. Each figure is the median of its runs. A
// ratio is computed within each turn, from measurements next to each other in
// time, and its figure is the median of these ratios.
//
// [Paced] and [Flood] make the calls of a measurement: at random moments, or as
// fast as possible.
package measure

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"example.com/lockstep/lab/bench/report"
)

// A Size sets the amount of work of each measurement.
type Size int

// Quick does a little of everything, to check that it runs; Normal gives the
// figures for docs and people; Full adds the large tables.
const (
	Quick Size = iota
	Normal
	Full
)

// runs is the number of turns of a series that sets none itself.
func (s Size) runs() int { return [...]int{Quick: 1, Normal: 3, Full: 5}[s] }

// A Series is a set of measurements that are taken in turns.
type Series struct {
	Title        string
	From         Size // the smallest size that includes it
	Runs         int  // turns; 0: the size's number, as always in Quick
	Measurements []Measurement
	Derived      []Derived
}

// A Measurement is one side of a series. Its figures do not depend on the
// remains of an earlier run, on this side or another.
type Measurement struct {
	Figures []Figure
	Run     Run
}

// A Run takes a measurement once. It has three minutes, even if the measured
// work is slow. An error that wraps [ErrMissing] leaves the measurement out;
// any other error is a failure.
type Run func(context.Context, Size) (Reading, error)

// A Figure is a number with a name that programs and documents use.
type Figure struct {
	Name, Unit string
	Note       string // remark that a reader of the number needs
	MayBeZero  bool   // as the number of faults may; a rate or a time of zero is a failure
}

// A Reading is the result of one run of a measurement: a positive value for
// each of its figures, or zero where that may be, and a remark about this run.
type Reading struct {
	Values []float64
	Note   string
}

// Sampled returns a reading with the number of samples as its remark.
func Sampled(n int, values ...float64) Reading {
	return Reading{values, fmt.Sprintf("%d samples a run", n)}
}

// Single returns the run of a measurement with one figure; once gets the volume
// of its size.
func Single[V any](volumes [Full + 1]V, once func(context.Context, V) (float64, error)) Run {
	return func(ctx context.Context, size Size) (Reading, error) {
		v, err := once(ctx, volumes[size])
		return Reading{Values: []float64{v}}, err
	}
}

// A Derived figure is computed in each turn from other figures of its series.
type Derived struct {
	Figure

	RatioTo string // the figure that it is a ratio to; empty if it is no ratio
	From    []string
	Compute func(in []float64) float64 // in is parallel to from
}

// Ratio derives the quotient of the figures of and to.
func Ratio(name, of, to, note string) Derived {
	return Derived{
		Figure: Figure{Name: name, Unit: "x", Note: note}, RatioTo: to,
		From:    []string{of, to},
		Compute: func(in []float64) float64 { return in[0] / in[1] },
	}
}

// ErrMissing means that this machine lacks something that a measurement needs.
var ErrMissing = errors.New("left out")

// only returns the part of the series that the matching figures need. It is
// empty if no figure matches.
func (s Series) only(match *regexp.Regexp) Series {
	wanted := make(map[string]bool)
	for _, f := range s.Figures() {
		wanted[f.Name] = match.MatchString(f.Name)
	}
	// A derived figure comes after the figures that it is computed from.
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

// Package measure takes measurements in turns. A series is a set of measurements that are taken in
// turns, A B C A B C. So a disturbance of the machine affects all of them. Each figure is the
// median of its runs. A ratio is computed in each turn, from measurements that are next to each
// other in time. The figure of a ratio is the median of these values.
//
// [Paced] and [Flood] make the calls of a measurement. Paced makes them at random moments. Flood
// makes them as fast as possible.
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

// Quick does a little of everything, to check that everything runs. Normal gives the figures for
// documents and people. Full adds the large tables.
const (
	Quick Size = iota
	Normal
	Full
)

// runs returns the number of turns of a series that does not set the number itself.
func (s Size) runs() int { return [...]int{Quick: 1, Normal: 3, Full: 5}[s] }

// A Series is a set of measurements that are taken in turns.
type Series struct {
	Title        string
	From         Size // the smallest size that includes it
	Long         bool // takes too long for Normal, which has a quarter of an hour for all series
	Runs         int  // number of turns; 0 means Size.runs, which Quick takes in any case
	Measurements []Measurement
	Derived      []Derived
}

// A Measurement is one side of a series. Its figures do not depend on what an earlier run of this
// side or of another side has left behind.
type Measurement struct {
	Figures []Figure
	Run     Run
}

// A Run is a function that takes a measurement once. It must end within three minutes, even if the
// measured work is slow. If its error wraps [ErrMissing], the measurement is left out. Any other
// error is a failure.
type Run func(context.Context, Size) (Reading, error)

// A Figure is a number with a name that programs and documents use.
type Figure struct {
	Name, Unit string
	Note       string // remark that a reader of the number needs
	MayBeZero  bool   // as the number of faults may; a rate or a time of zero is a failure
}

// A Reading is the result of one run of a measurement. Values has a value for each figure. A value
// must be positive, or zero if the figure allows zero. Note is a remark about this run.
type Reading struct {
	Values []float64
	Note   string
}

// Sampled returns a reading with the number of samples as its remark.
func Sampled(n int, values ...float64) Reading {
	return Reading{values, fmt.Sprintf("%d samples a run", n)}
}

// Single returns the run of a measurement with one figure. The run calls the function once with the
// volume of the present size.
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
	Compute func(in []float64) float64 // in has the values of the figures in From, in the same order
}

// Ratio derives the quotient of two figures of the series: the figure named of divided by the
// figure named to.
func Ratio(name, of, to, note string) Derived {
	return Derived{
		Figure: Figure{Name: name, Unit: "x", Note: note}, RatioTo: to,
		From:    []string{of, to},
		Compute: func(in []float64) float64 { return in[0] / in[1] },
	}
}

// ErrMissing means that this machine does not have something that a measurement needs.
var ErrMissing = errors.New("left out")

// only returns the part of the series that is needed for the figures whose names match. It is empty
// if no name matches.
func (s Series) only(match *regexp.Regexp) Series {
	wanted := make(map[string]bool)
	for _, f := range s.Figures() {
		wanted[f.Name] = match.MatchString(f.Name)
	}
	// A derived figure comes after the figures that it is computed from. So the loop runs backward.
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

// Figures returns a result for each figure, in order. The results have no values.
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

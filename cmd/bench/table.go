package main

import (
	"context"
	"errors"
	"regexp"
	"slices"

	"example.com/lockstep/cmd/bench/report"
)

// table lists all series, in the order in which they are run and printed. Those
// that need a database have it from p.
func table(p *postgres) []series {
	return slices.Concat(localpubsubSeries(), outboxSeries(p), inboxSeries(), visibleSeries(p), readSeries(), startSeries(p))
}

// A size says how much of everything is done.
type size int

const (
	quick size = iota
	normal
	full
)

// runs is how many turns a series takes that does not say so itself.
func (s size) runs() int { return [...]int{quick: 1, normal: 3, full: 5}[s] }

// A series is a set of measurements that are taken in turns.
type series struct {
	title        string
	from         size // the smallest size that it is part of
	runs         int  // turns; 0: as many as the size says
	measurements []measurement
	derived      []derived
}

// A measurement is one side of a series. Its figures depend on nothing that an
// earlier run has left behind, on this side or another.
type measurement struct {
	figures []figure
	// run takes the measurement once. It returns within [runTime], also when
	// what it measures is slow. An error that wraps errMissing leaves the
	// measurement out; any other one is a failure.
	run func(ctx context.Context, size size) (reading, error)
}

// A figure is a number with a name, by which programs and documents know it.
type figure struct {
	name, unit string
	note       string // what a reader of the number must know
}

// A reading is what one run of a measurement has found: a positive value for each
// of its figures, and whatever else there is to say about this run.
type reading struct {
	values []float64
	note   string
}

// A derived figure is computed in each turn from other figures of its series.
type derived struct {
	figure

	ratioTo string // what it is a ratio to; empty when it is none
	from    []string
	compute func(in []float64) float64 // in is parallel to from
}

// ratio derives how many times to goes into of.
func ratio(name, of, to, note string) derived {
	return derived{
		figure: figure{name: name, unit: "x", note: note}, ratioTo: to,
		from:    []string{of, to},
		compute: func(in []float64) float64 { return in[0] / in[1] },
	}
}

// errMissing says that this machine lacks what a measurement needs.
var errMissing = errors.New("left out")

// only returns what it takes to know the figures that match. It is empty when
// none does.
func (s series) only(match *regexp.Regexp) series {
	wanted := make(map[string]bool)
	for _, f := range s.figures() {
		wanted[f.Name] = match.MatchString(f.Name)
	}
	// A derived figure stands behind those that it is computed from.
	for _, d := range slices.Backward(s.derived) {
		for _, name := range d.from {
			wanted[name] = wanted[name] || wanted[d.name]
		}
	}
	s.measurements = slices.DeleteFunc(slices.Clone(s.measurements), func(m measurement) bool {
		return !slices.ContainsFunc(m.figures, func(f figure) bool { return wanted[f.name] })
	})
	s.derived = slices.DeleteFunc(slices.Clone(s.derived), func(d derived) bool { return !wanted[d.name] })
	return s
}

// figures returns a result without a value for each figure, in order.
func (s series) figures() (results []report.Result) {
	for _, m := range s.measurements {
		for _, f := range m.figures {
			results = append(results, report.Result{Name: f.name, Unit: f.unit, Note: f.note})
		}
	}
	for _, d := range s.derived {
		results = append(results, report.Result{Name: d.name, Unit: d.unit, RatioTo: d.ratioTo, Note: d.note})
	}
	return results
}

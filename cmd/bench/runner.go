package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"example.com/lockstep/cmd/bench/report"
)

// runTime bounds one run of one measurement: far above what any takes, so that a
// server that hangs costs its own figures only.
const runTime = 3 * time.Minute

// bench is one execution of the command.
type bench struct {
	only           *regexp.Regexp
	size           size
	stdout, stderr io.Writer
}

// run takes all series and reports them, those that failed apart. The error says
// what failed.
func (b bench) run(ctx context.Context, all []series, jsonFile string) error {
	var sections []report.Section
	var failed []error
	for _, s := range all {
		s = s.only(b.only)
		if len(s.measurements) == 0 {
			continue
		}
		done, err := b.take(ctx, s)
		failed = append(failed, err)
		sections = append(sections, done)
		if err := done.WriteTable(b.stdout); err != nil {
			return err
		}
		if ctx.Err() != nil {
			failed = append(failed, errors.New("interrupted"))
			break // what has been measured before is reported
		}
	}
	if len(sections) == 0 {
		return usagef("--only %q matches no figure", b.only)
	}
	return errors.Join(append(failed, report.WriteJSON(jsonFile, sections))...)
}

// turns is a series while it is being taken.
type turns struct {
	series

	taken map[string][]float64 // by figure, in the order of the turns
	notes map[string]string    // by figure: what its last run said
	ended map[int]error        // by measurement: why it is not taken any more
}

func (b bench) take(ctx context.Context, s series) (report.Section, error) {
	if b.size < s.from {
		return report.Section{Title: s.title, LeftOut: []string{"left out: not part of this size"}}, nil
	}
	if s.runs == 0 || b.size == quick {
		s.runs = b.size.runs()
	}
	t := &turns{series: s, taken: map[string][]float64{}, notes: map[string]string{}, ended: map[int]error{}}
	for turn := range s.runs {
		values := make(map[string]float64)
		for i, m := range s.measurements {
			if t.ended[i] != nil {
				continue
			}
			start := time.Now()
			t.ended[i] = t.one(ctx, m, b.size, values)
			fmt.Fprintf(b.stderr, "%s: run %d of %d took %.1f s\n", m.figures[0].name, turn+1, s.runs, time.Since(start).Seconds())
		}
		t.finish(values)
	}
	return t.section()
}

// one runs one measurement once and puts what it found into values.
func (t *turns) one(ctx context.Context, m measurement, size size, values map[string]float64) error {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	reading, err := m.run(ctx, size)
	if err != nil {
		return err
	}
	for i, f := range m.figures {
		if v := reading.values[i]; !(v > 0) || math.IsInf(v, 0) {
			return fmt.Errorf("%s = %v, want a positive number", f.name, v)
		}
	}
	for i, f := range m.figures {
		values[f.name] = reading.values[i]
		t.notes[f.name] = reading.note
	}
	return nil
}

// finish derives what can be derived and keeps the values of the turn.
func (t *turns) finish(values map[string]float64) {
	for _, d := range t.derived {
		in := make([]float64, 0, len(d.from))
		for _, name := range d.from {
			if v, ok := values[name]; ok {
				in = append(in, v)
			}
		}
		if len(in) == len(d.from) {
			values[d.name] = d.compute(in)
		}
	}
	for name, v := range values {
		t.taken[name] = append(t.taken[name], v)
	}
}

// section holds the figures of which all runs went well. What a measurement that
// failed on its way has found is not reported: nobody knows what it is worth.
func (t *turns) section() (report.Section, error) {
	out := report.Section{Title: t.title}
	var failed []error
	for i, m := range t.measurements {
		switch err := t.ended[i]; {
		case errors.Is(err, errMissing):
			out.LeftOut = append(out.LeftOut, fmt.Sprintf("%s: %v", m.figures[0].name, err))
		case err != nil:
			out.LeftOut = append(out.LeftOut, fmt.Sprintf("%s failed: %v", m.figures[0].name, err))
			failed = append(failed, fmt.Errorf("%s: %w", m.figures[0].name, err))
		}
	}
	for _, r := range t.figures() {
		runs := t.taken[r.Name]
		if len(runs) < t.runs {
			continue
		}
		r.Value, r.Runs = median(runs), len(runs)
		r.Low, r.High = slices.Min(runs), slices.Max(runs)
		r.Note = strings.Trim(r.Note+"; "+t.notes[r.Name], "; ")
		out.Results = append(out.Results, r)
	}
	return out, errors.Join(failed...)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

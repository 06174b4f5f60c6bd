package measure

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

	"example.com/lockstep/lab/bench/report"
)

// runTime bounds one run of one measurement. It is far longer than a run takes. So a server that
// hangs costs only its own figures.
const runTime = 3 * time.Minute

// A Bench is one execution of the command.
type Bench struct {
	Only   *regexp.Regexp // matches the names of figures
	Size   Size
	Stdout io.Writer // for the tables
	Stderr io.Writer // for the progress
}

// ErrNoMatch means that no figure matches.
var ErrNoMatch = errors.New("matches no figure")

// Run measures the figures that b.Only matches, in the order of all. Run writes the tables to
// b.Stdout and the results to jsonFile. If a measurement fails, its figures are missing there, and
// the error names the measurement.
func (b Bench) Run(ctx context.Context, all []Series, jsonFile string) error {
	var sections []report.Section
	var failed []error
	for _, s := range all {
		s = s.only(b.Only)
		if len(s.Measurements) == 0 {
			continue
		}
		start := time.Now()
		done, err := b.take(ctx, s)
		done.Took = time.Since(start)
		failed = append(failed, err)
		sections = append(sections, done)
		if err := done.WriteTable(b.Stdout); err != nil {
			return err
		}
		if ctx.Err() != nil {
			failed = append(failed, errors.New("interrupted"))
			break // the earlier measurements are reported
		}
	}
	if len(sections) == 0 {
		return fmt.Errorf("--only %q %w", b.Only, ErrNoMatch)
	}
	failed = append(failed, report.WriteTimes(b.Stdout, sections), report.WriteSpread(b.Stdout, sections))
	return errors.Join(append(failed, report.WriteJSON(jsonFile, sections))...)
}

// turns is a series during its measurement.
type turns struct {
	Series

	taken map[string][]float64 // by figure, in the order of the turns
	notes map[string]string    // by figure: the remark of its last run
	ended map[int]error        // by measurement: the reason why it has ended
}

func (b Bench) take(ctx context.Context, s Series) (report.Section, error) {
	if b.Size < s.From || s.Long && b.Size == Normal {
		return report.Section{Title: s.Title, LeftOut: []string{"left out: not part of this size"}}, nil
	}
	if s.Runs == 0 || b.Size == Quick {
		s.Runs = b.Size.runs()
	}
	t := &turns{Series: s, taken: map[string][]float64{}, notes: map[string]string{}, ended: map[int]error{}}
	for turn := range s.Runs {
		values := make(map[string]float64)
		for i, m := range s.Measurements {
			if t.ended[i] != nil {
				continue
			}
			start := time.Now()
			t.ended[i] = t.one(ctx, m, b.Size, values)
			fmt.Fprintf(b.Stderr, "%s: run %d of %d took %.1f s\n", m.Figures[0].Name, turn+1, s.Runs, time.Since(start).Seconds())
		}
		t.finish(values)
	}
	return t.section()
}

// one runs one measurement once and puts its figures into values.
func (t *turns) one(ctx context.Context, m Measurement, size Size, values map[string]float64) error {
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	reading, err := m.Run(ctx, size)
	if err != nil {
		return err
	}
	for i, f := range m.Figures {
		if v := reading.Values[i]; !(v > 0 || f.MayBeZero && v == 0) || math.IsInf(v, 0) {
			return fmt.Errorf("%s = %v, want a positive number", f.Name, v)
		}
	}
	for i, f := range m.Figures {
		values[f.Name] = reading.Values[i]
		t.notes[f.Name] = reading.Note
	}
	return nil
}

// finish computes the derived figures whose inputs all have values, and stores the values of the
// turn.
func (t *turns) finish(values map[string]float64) {
	for _, d := range t.Derived {
		in := make([]float64, 0, len(d.From))
		for _, name := range d.From {
			if v, ok := values[name]; ok {
				in = append(in, v)
			}
		}
		if len(in) == len(d.From) {
			values[d.Name] = d.Compute(in)
		}
	}
	for name, v := range values {
		t.taken[name] = append(t.taken[name], v)
	}
}

// section returns the figures that have a value from each turn. If a measurement failed in a later
// turn, its figures are not reported, because their quality is unknown.
func (t *turns) section() (report.Section, error) {
	out := report.Section{Title: t.Title}
	var failed []error
	for i, m := range t.Measurements {
		switch err := t.ended[i]; {
		case errors.Is(err, ErrMissing):
			out.LeftOut = append(out.LeftOut, fmt.Sprintf("%s: %v", m.Figures[0].Name, err))
		case err != nil:
			out.LeftOut = append(out.LeftOut, fmt.Sprintf("%s failed: %v", m.Figures[0].Name, err))
			failed = append(failed, fmt.Errorf("%s: %w", m.Figures[0].Name, err))
		}
	}
	for _, r := range t.Figures() {
		runs := t.taken[r.Name]
		if len(runs) < t.Runs {
			continue
		}
		r.Value, r.Runs = median(runs), len(runs)
		r.Low, r.High = slices.Min(runs), slices.Max(runs)
		r.Note = strings.Trim(r.Note+"; "+t.notes[r.Name], "; ")
		out.Results = append(out.Results, r)
	}
	return out, errors.Join(failed...)
}

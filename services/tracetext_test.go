package services_test

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
)

func hexOf(id []byte) string { return hex.EncodeToString(id) }

// describeTraces tells the trace that the caller from outside began, and those that link to
// it, as trees: without ids and times, and without the spans that depend on the pool's
// connections.
func describeTraces(t testing.TB, spans []collected) string {
	t.Helper()
	spans = slices.DeleteFunc(slices.Clone(spans), isOfPool)
	slices.SortStableFunc(spans, func(a, b collected) int { return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano) })
	d := &description{names: map[string]string{callersSpan: "the caller's span"}, children: map[string][]collected{}}
	first := d.linkedTo(spans, func(l *otlp.Span_Link) bool { return hexOf(l.SpanId) == callersSpan })
	if len(first) != 1 {
		t.Fatalf("%d traces are linked to the caller's, want one", len(first))
	}
	d.tell(spans, first[0])
	for _, trace := range d.linkedTo(spans, func(l *otlp.Span_Link) bool { return hexOf(l.TraceId) == first[0] }) {
		if trace != first[0] {
			d.text.WriteString("\n")
			d.tell(spans, trace)
		}
	}
	return d.text.String()
}

// isOfPool reports whether a span is there only if a connection has to be made, or a statement
// to be prepared on it.
func isOfPool(s collected) bool {
	return s.Name == "connect" || s.Name == "PREPARE"
}

type description struct {
	text strings.Builder
	// names are those of the spans that were told, by id.
	names    map[string]string
	children map[string][]collected
}

// linkedTo are the traces that have such a link, in the order of their spans.
func (d *description) linkedTo(spans []collected, is func(*otlp.Span_Link) bool) (traces []string) {
	for _, s := range spans {
		if slices.ContainsFunc(s.Links, is) && !slices.Contains(traces, hexOf(s.TraceId)) {
			traces = append(traces, hexOf(s.TraceId))
		}
	}
	return traces
}

func (d *description) tell(spans []collected, trace string) {
	known := map[string]bool{}
	spans = slices.DeleteFunc(slices.Clone(spans), func(s collected) bool { return hexOf(s.TraceId) != trace })
	for _, s := range spans {
		known[hexOf(s.SpanId)] = true
	}
	var roots []collected
	for _, s := range spans {
		if parent := hexOf(s.ParentSpanId); known[parent] {
			d.children[parent] = append(d.children[parent], s)
		} else {
			roots = append(roots, s)
		}
	}
	for _, s := range roots {
		d.tellSpan(s, 0)
	}
}

func (d *description) tellSpan(s collected, depth int) {
	name := nameOf(s)
	d.names[hexOf(s.SpanId)] = d.distinct(name)
	kind := strings.ToLower(strings.TrimPrefix(s.Kind.String(), "SPAN_KIND_"))
	line := fmt.Sprintf("%-45s %-8s %-9s%s", strings.Repeat("  ", depth)+name, s.service, kind, d.notes(s, depth))
	d.text.WriteString(strings.TrimRight(line, " ") + "\n")
	for _, child := range d.children[hexOf(s.SpanId)] {
		d.tellSpan(child, depth+1)
	}
}

// distinct is name, with a number if an earlier span has it.
func (d *description) distinct(name string) string {
	for candidate, n := name, 2; ; n++ {
		taken := false
		for _, other := range d.names {
			taken = taken || other == candidate
		}
		if !taken {
			return candidate
		}
		candidate = fmt.Sprintf("%s (%d)", name, n)
	}
}

var writes = regexp.MustCompile(`(?:INSERT INTO|UPDATE) (\w+)`)

// nameOf is the span's name; that of statements says which tables they write.
func nameOf(s collected) string {
	name := strings.TrimSpace(s.Name)
	for _, table := range writes.FindAllStringSubmatch(s.text("db.query.text"), -1) {
		name += " " + table[1]
	}
	return name
}

// notes are the result and the links of a span.
func (d *description) notes(s collected, depth int) string {
	var notes []string
	if depth == 0 && len(s.ParentSpanId) > 0 {
		notes = append(notes, "its parent is missing")
	}
	if outcome := s.text("outcome"); outcome != "" {
		notes = append(notes, outcome)
	}
	if s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
		notes = append(notes, "error "+s.text("error.type"))
	}
	for _, l := range s.Links {
		name, ok := d.names[hexOf(l.SpanId)]
		if !ok {
			name = "an unknown span"
		}
		notes = append(notes, "link: "+name)
	}
	return strings.Join(notes, ", ")
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"example.com/lockstep/pkg/localpubsub/conformance"
)

// document keeps the table, between these lines.
const (
	document = "docs/pubsub-conformance.md"
	begin    = "<!-- what follows is printed by cmd/conformance -->\n"
	end      = "<!-- end of what is printed -->\n"
)

// table is behaviour × subject.
type table struct {
	behaviours []conformance.Behaviour
	columns    []column
}

// print writes Markdown: the table, then for each subject why it departs.
func (t table) print(w io.Writer) {
	fmt.Fprint(w, "| area | behaviour |")
	for _, c := range t.columns {
		fmt.Fprintf(w, " %s |", c.subject.Name)
	}
	fmt.Fprintf(w, "\n| --- | --- |%s\n", strings.Repeat(" :-: |", len(t.columns)))
	area := ""
	for i, b := range t.behaviours {
		first := b.Area
		if first == area {
			first = ""
		}
		area = b.Area
		fmt.Fprintf(w, "| %s | [%s](%s) |", first, escape(b.Name), b.Source)
		for _, c := range t.columns {
			fmt.Fprintf(w, " %s |", mark(c.outcomes[i]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "| | **together** |")
	for _, c := range t.columns {
		fmt.Fprintf(w, " **%d/%d** |", len(t.behaviours)-c.failed(), len(t.behaviours))
	}
	fmt.Fprintln(w)
	for _, c := range t.columns {
		c.printReasons(w)
	}
}

func mark(o conformance.Outcome) string {
	if o.Err == nil && !o.Left {
		return "✓"
	}
	return "✗"
}

func (c column) printReasons(w io.Writer) {
	if c.failed() == 0 {
		return
	}
	fmt.Fprintf(w, "\n**%s** does otherwise:\n\n", c.subject.Name)
	for _, o := range c.outcomes {
		departure, listed := c.subject.Departures[o.Behaviour.Name]
		switch {
		case o.Left:
			fmt.Fprintf(w, "- %s: %s (left out of runs)\n", escape(o.Behaviour.Name), departure.Why)
		case o.Err != nil && listed:
			fmt.Fprintf(w, "- %s: %s\n", escape(o.Behaviour.Name), departure.Why)
		case o.Err != nil:
			fmt.Fprintf(w, "- %s: %s\n", escape(o.Behaviour.Name), strings.Join(strings.Fields(o.Err.Error()), " "))
		}
	}
}

// escape keeps Markdown from taking an underscore for emphasis.
func escape(text string) string { return strings.ReplaceAll(text, "_", `\_`) }

// write puts the table into the file, in place of the last one.
func (t table) write(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(text, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return errors.New(name + " has no place for the table")
	}
	var b bytes.Buffer
	b.Write(before)
	fmt.Fprint(&b, begin, "\n")
	t.print(&b)
	fmt.Fprint(&b, "\n", end)
	b.Write(after)
	return os.WriteFile(name, b.Bytes(), 0o644)
}

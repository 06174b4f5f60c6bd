package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"example.com/lockstep/localpubsub/conformance"
)

// document is the file that contains the table, between the lines begin and
// end.
const (
	document = "CONFORMANCE.md"
	begin    = "<!-- printed by cmd/conformance -->\n"
	end      = "<!-- end of the printed part -->\n"
)

// table has a row for each behaviour and a column for each subject.
type table struct {
	behaviours []conformance.Behaviour
	columns    []column
}

// print writes the table in Markdown. After the table it writes the reasons for the departures of
// each subject.
func (t table) print(w io.Writer) {
	fmt.Fprint(w, "| area | behaviour |")
	for _, c := range t.columns {
		fmt.Fprintf(w, " %s |", c.subject.Name)
	}
	fmt.Fprintf(w, "\n| --- | --- |%s\n", strings.Repeat(" :-: |", len(t.columns)))
	area := ""
	for i, b := range t.behaviours {
		if b.Area == area {
			fmt.Fprint(w, "| |")
		} else {
			area = b.Area
			fmt.Fprintf(w, "| %s |", area)
		}
		fmt.Fprintf(w, " [%s](%s) |", escape(b.Name), b.Source)
		for _, c := range t.columns {
			fmt.Fprintf(w, " %s |", c.mark(c.outcomes[i]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "| | **of these** |")
	for _, c := range t.columns {
		fmt.Fprintf(w, " **%d/%d** |", len(t.behaviours)-c.departing(), len(t.behaviours))
	}
	fmt.Fprintln(w)
	for _, c := range t.columns {
		c.printReasons(w)
	}
}

func (c column) mark(o conformance.Outcome) string {
	if c.departs(o) {
		return "✗"
	}
	return "✓"
}

// printReasons prints each reason once, with all behaviours that fail for this reason.
func (c column) printReasons(w io.Writer) {
	if c.departing() == 0 {
		return
	}
	var reasons []string
	names := make(map[string][]string)
	for _, o := range c.outcomes {
		if c.departs(o) {
			why := c.why(o)
			if names[why] == nil {
				reasons = append(reasons, why)
			}
			names[why] = append(names[why], "*"+escape(o.Behaviour.Name)+"*")
		}
	}
	fmt.Fprintf(w, "\n### %s\n\n", c.subject.Name)
	for _, why := range reasons {
		fmt.Fprintf(w, "- %s: %s\n", strings.Join(names[why], "; "), escape(why))
	}
}

func (c column) why(o conformance.Outcome) string {
	departure, listed := c.subject.Departures[o.Behaviour.Name]
	switch {
	case !listed:
		return strings.Join(strings.Fields(o.Err.Error()), " ")
	case departure.Harmful:
		return departure.Why + " (not run)"
	case departure.Sometimes:
		return departure.Why + " (in some runs)"
	default:
		return departure.Why
	}
}

// escape escapes underscores, so that Markdown does not read them as emphasis.
func escape(text string) string { return strings.ReplaceAll(text, "_", `\_`) }

// write replaces the table in the file with the given name.
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

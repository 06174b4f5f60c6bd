// Package report writes figures. It writes tables on stdout for people, and a JSON file for
// programs. Both have the median of the runs of each figure. A table also has the smallest and the
// largest value.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A Result is one figure of a report. The JSON form of a Result is a contract.
type Result struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"` // median of the runs
	Unit    string  `json:"unit"`
	RatioTo string  `json:"ratio_to"` // name of the figure that it is a ratio to, or empty
	Runs    int     `json:"runs"`
	Note    string  `json:"note"`

	Low  float64 `json:"-"` // of the runs
	High float64 `json:"-"`
}

// A Section is the report of one series.
type Section struct {
	Title   string
	Results []Result
	LeftOut []string // the omitted figures, each with the reason
	Took    time.Duration
}

// WriteJSON replaces the file with the results of all sections.
func WriteJSON(name string, sections []Section) error {
	results := []Result{} // an empty array, never null
	for _, s := range sections {
		results = append(results, s.Results...)
	}
	for i := range results {
		results[i].Value = significant(results[i].Value)
	}
	encoded, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, append(encoded, '\n'), 0o644)
}

// wide is the limit of a figure's spread, as a part of the median. The spread is the difference
// between the highest and the lowest run. On a quiet machine, it is below this limit.
const wide = 1.0 / 3

// WriteSpread writes how many figures differ widely between their runs. If a quarter or more of
// them do, the machine was noisy.
func WriteSpread(w io.Writer, sections []Section) error {
	repeated, differ := 0, 0
	for _, s := range sections {
		for _, r := range s.Results {
			if r.Runs < 2 {
				continue
			}
			repeated++
			if r.High-r.Low > wide*r.Value {
				differ++
			}
		}
	}
	verdict := ""
	if repeated > 0 && 4*differ >= repeated {
		verdict = " The machine was noisy: take the run again when nothing else works on it."
	}
	_, err := fmt.Fprintf(w, "\nSpread: %d of %d figures differ by more than a third of their median from one run to another.%s\n",
		differ, repeated, verdict)
	return err
}

// WriteTimes writes a table with the time that each series took.
func WriteTimes(w io.Writer, sections []Section) error {
	rows := [][]string{{"series", "s"}}
	var sum time.Duration
	for _, s := range sections {
		rows, sum = append(rows, []string{s.Title, Display(s.Took.Seconds())}), sum+s.Took
	}
	_, err := fmt.Fprintf(w, "\n### %s in all\n\n%s", sum.Round(time.Second), align(rows))
	return err
}

// WriteTable prints the section as a Markdown table that is also readable in a
// terminal.
func (s Section) WriteTable(w io.Writer) error {
	rows := [][]string{{"figure", "median", "unit", "lowest to highest", "runs", "ratio to", "note"}}
	for _, r := range s.Results {
		rows = append(rows, []string{
			r.Name, Display(r.Value), r.Unit, Display(r.Low) + " to " + Display(r.High), strconv.Itoa(r.Runs), r.RatioTo, r.Note,
		})
	}
	var out strings.Builder
	fmt.Fprintf(&out, "\n### %s\n\n", s.Title)
	if len(s.Results) > 0 {
		out.WriteString(align(rows))
	}
	for _, reason := range s.LeftOut {
		fmt.Fprintf(&out, "\n- %s\n", reason)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// align formats rows as a Markdown table. The first row is the head of the table. The second column
// has the numbers.
func align(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width)
	}
	rule[1] = rule[1][1:] + ":"
	var out strings.Builder
	for i, row := range rows {
		writeRow(&out, row, widths)
		if i == 0 {
			writeRow(&out, rule, widths)
		}
	}
	return out.String()
}

func writeRow(out *strings.Builder, row []string, widths []int) {
	for i, cell := range row {
		if width := widths[i]; i == 1 {
			fmt.Fprintf(out, "| %*s ", width, cell)
		} else {
			fmt.Fprintf(out, "| %-*s ", width, cell)
		}
	}
	out.WriteString("|\n")
}

// digits is the number of significant digits of a figure.
const digits = 4

func significant(v float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64) // parses its own output
	return rounded
}

// Display formats v for people. It gives three digits. From 100 on it gives the whole number
// without a fraction.
func Display(v float64) string {
	if v >= 100 {
		return group(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// group inserts a comma between groups of three digits.
func group(whole string) string {
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return whole
}

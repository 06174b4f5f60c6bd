package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"example.com/lockstep/pkg/eventing/operator/audit"
)

// printable replaces control characters, so that the content of a message
// cannot send escape sequences to the operator's terminal.
type printable struct{ io.Writer }

func (p printable) Write(text []byte) (int, error) {
	_, err := io.WriteString(p.Writer, strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, string(text)))
	return len(text), err
}

// print writes v as JSON if --json is given. Otherwise it writes text in columns.
func (s *invocation) print(v any, text func(w io.Writer)) error {
	if s.json {
		return json.NewEncoder(s.exact).Encode(v)
	}
	w := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// oneLine makes text fit a table. The result has no line breaks and a limited length.
func oneLine(text string) string {
	const longest = 100
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return string(runes)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func printActions(w io.Writer, actions []audit.Entry) {
	for _, a := range actions {
		fmt.Fprintf(w, "%s\t%s by %s (role %s): %s\n", stamp(a.At), a.Action, a.By, a.DatabaseRole, oneLine(cmp.Or(a.Why, "no reason given")))
	}
}

package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Violation is a broken promise, with the records that show it.
type Violation struct {
	Promise   string // P1 to P10
	Aggregate string
	Says      string
	Records   []Record
}

func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s: %s", v.Promise, v.Aggregate, v.Says)
	for _, r := range v.Records {
		line, err := encode([]Record{r})
		if err != nil {
			line = []byte(err.Error() + "\n")
		}
		b.WriteString("\n\t" + strings.TrimSuffix(string(line), "\n"))
	}
	return b.String()
}

// rules are the checks of the promises. Each returns the violations in the records of one
// aggregate.
var rules = []func(life) []Violation{
	committed, delivered, ordered, sentInOrder, once, settled, forward, gapless, reported, fresh, converged,
}

// Check returns the violations of the promises in the history of a finished run.
func Check(records []Record) []Violation {
	var found []Violation
	lives := map[string]life{}
	for _, r := range records {
		lives[r.Aggregate] = append(lives[r.Aggregate], r)
	}
	for _, aggregate := range slices.Sorted(maps.Keys(lives)) {
		for _, rule := range rules {
			for _, v := range rule(lives[aggregate]) {
				v.Aggregate = aggregate
				found = append(found, v)
			}
		}
	}
	return found
}

// life is the records of one aggregate.
type life []Record

func (l life) of(kinds ...Kind) life {
	var some life
	for _, r := range l {
		if slices.Contains(kinds, r.Kind) {
			some = append(some, r)
		}
	}
	return some
}

// byEvent returns the first record of a kind for each event.
func (l life) byEvent(kind Kind) map[string]Record {
	first := map[string]Record{}
	for _, r := range l {
		if _, seen := first[r.Event]; r.Kind == kind && !seen {
			first[r.Event] = r
		}
	}
	return first
}

// predecessors returns the predecessor of each event. The predecessor is the last earlier write
// whose version is one less than the event's version. The result has no entry for a first version.
func (l life) predecessors() map[string]Record {
	last, before := map[int64]Record{}, map[string]Record{}
	for _, w := range l.of(Write) {
		if p, ok := last[w.Version-1]; ok {
			before[w.Event] = p
		}
		last[w.Version] = w
	}
	return before
}

func breaks(promise, says string, records ...Record) Violation {
	return Violation{Promise: promise, Says: says, Records: records}
}

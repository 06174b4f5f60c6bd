package inbox_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// scopes bound the worlds. LOCKSTEP_FULL=1 explores the large scopes instead, and make crash sets it.
var scopes, largeScopes = []scope{
	{"differences", false, limits{writes: 3, questions: 1, replays: 1}},
	{"a failover", false, limits{writes: 3, failovers: 1, pauses: 1}},
	{"a longer history", false, limits{writes: 4, failovers: 1}},
	{"an epoch", false, limits{writes: 3, failovers: 1, epochs: 1}},
	{"a question", false, limits{writes: 2, failovers: 1, pauses: 2, questions: 1}},
	{"a question in an epoch", false, limits{writes: 2, failovers: 1, epochs: 1, questions: 1}},
	{"puts", true, limits{writes: 4, failovers: 1}},
	{"puts and questions", true, limits{writes: 3, failovers: 1, questions: 1}},
}, []scope{
	{"a failover", false, limits{writes: 4, failovers: 1, pauses: 2}},
	{"questions", false, limits{writes: 3, failovers: 1, pauses: 2, questions: 1}},
	{"epochs", false, limits{writes: 3, failovers: 1, epochs: 1, questions: 1}},
	{"two failovers", false, limits{writes: 3, failovers: 2, pauses: 2}},
	{"a replay", false, limits{writes: 4, failovers: 1, replays: 1}},
	{"two questions", true, limits{writes: 3, failovers: 1, pauses: 1, questions: 2}},
	{"puts", true, limits{writes: 5, failovers: 1, epochs: 1}},
}

type scope struct {
	name string
	puts bool
	left limits
}

// mostWorlds bounds the memory of a search to 2 GB.
const mostWorlds = 3_500_000

// TestEveryInterleaving visits every world that the steps lead to within a scope, and checks the promises
// at each step. All decisions are those of Decide, Adopt, Advance, Replace, Has and MayLag.
func TestEveryInterleaving(t *testing.T) {
	t.Parallel()
	explored := scopes
	if os.Getenv("LOCKSTEP_FULL") != "" {
		explored = largeScopes
	}
	taken := map[string]int{}
	for _, s := range explored {
		s.explore(t, taken)
	}
	for _, s := range steps {
		if taken[s.name] == 0 {
			t.Errorf("no world has the step %q", s.name)
		}
	}
}

// explore visits the worlds after the fewest steps first, so that a counterexample is a shortest one.
func (s scope) explore(t *testing.T, taken map[string]int) {
	t.Helper()
	start := world{puts: s.puts, left: s.left, owner: state{epoch: 1}}
	before := map[world]world{start: start}
	for queue := []world{start}; len(queue) > 0; queue = queue[1:] {
		w := queue[0]
		for _, step := range steps {
			step.take(w, func(next world, did effect, words string, about ...any) {
				taken[step.name]++
				_, known := before[next]
				if broken := breaks(w, next, did, known); broken != "" {
					t.Fatalf("%s: %s\n%s%s", s.name, broken, path(before, w), fmt.Sprintf(words, about...))
				}
				if !known {
					before[next] = w
					queue = append(queue, next)
				}
			})
		}
		if len(before) > mostWorlds {
			t.Fatalf("%s: the search was cut off after %d worlds", s.name, len(before))
		}
	}
	t.Logf("%s: %d worlds", s.name, len(before))
}

// breaks returns the promise that a step breaks. A known world was checked before.
func breaks(w, next world, did effect, known bool) string {
	for _, p := range promises {
		if !p.keeps(w, next, did) {
			return p.name
		}
	}
	if !known && !next.ends() {
		return "P9 poison, P10 converge: each event is settled at last, and the row becomes its owner's"
	}
	return ""
}

// path has the steps that lead to w, in words.
func path(before map[world]world, w world) string {
	var lines []string
	for from := before[w]; from != w; w, from = from, before[from] {
		line := ""
		for _, step := range steps {
			step.take(from, func(next world, _ effect, words string, about ...any) {
				if next == w {
					line = fmt.Sprintf(words, about...) + "\n"
				}
			})
		}
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "")
}

package scenario

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestEachButtonIsDocumented compares docs/live.md with the buttons: their labels, what to
// expect, and promises that there are.
func TestEachButtonIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/live.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, p := range Promises() {
		known[p.ID] = true
	}
	documented := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) != 3 || !strings.Contains(cells[2], "P") {
			continue
		}
		documented++
		for promise := range strings.SplitSeq(strings.TrimSuffix(cells[2], " |"), ", ") {
			if !known[promise] {
				t.Errorf("%s names the promise %q", cells[0], promise)
			}
		}
	}
	for _, s := range scenarios {
		if want := fmt.Sprintf("\n| %s | %s | P", s.label, s.expect); !strings.Contains(string(text), want) {
			t.Errorf("docs/live.md lacks %q", want)
		}
	}
	if documented != len(scenarios) {
		t.Errorf("docs/live.md has %d buttons, and there are %d", documented, len(scenarios))
	}
}

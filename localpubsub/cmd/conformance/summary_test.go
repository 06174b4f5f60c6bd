package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// summary sums the rows of the page by area, as the README shows them.
func summary(page string) string {
	type sums struct{ all, ours, emulator, pstest int }
	var areas []string
	byArea, total := map[string]*sums{}, sums{}
	row := regexp.MustCompile(`(?m)^\|([^|]*)\| \[.* \| ([✓✗]) \| (\S) \| (\S) \|$`)
	for _, m := range row.FindAllStringSubmatch(page, -1) {
		if area := strings.TrimSpace(m[1]); area != "" {
			areas = append(areas, area)
			byArea[area] = &sums{}
		}
		for _, s := range []*sums{byArea[areas[len(areas)-1]], &total} {
			s.all++
			s.ours += strings.Count(m[2], "✓")
			s.emulator += strings.Count(m[3], "✓")
			s.pstest += strings.Count(m[4], "✓")
		}
	}
	var b strings.Builder
	b.WriteString("| area | behaviours | `localpubsub` | emulator | `pstest` |\n| --- | --: | --: | --: | --: |\n")
	for _, area := range areas {
		s := byArea[area]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d |\n", area, s.all, s.ours, s.emulator, s.pstest)
	}
	fmt.Fprintf(&b, "| **all** | **%d** | **%d** | **%d** | **%d** |\n", total.all, total.ours, total.emulator, total.pstest)
	return b.String()
}

// TestReadmeSumsTheTable: the README has the sums of the page.
func TestReadmeSumsTheTable(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, name := range []string{document, "README.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if want := summary(texts[0]); !strings.Contains(texts[1], want) {
		t.Errorf("README.md does not have the sums of %s:\n%s", document, want)
	}
}

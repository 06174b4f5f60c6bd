package lockstep_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The list at the beginning of the runbook has a link to each entry, with the alerts that name the entry. The table before
// the list has a link for each page.
func TestTheRunbookListsItsEntries(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	list, entries, found := strings.Cut(string(text), "\n## Commands\n")
	if !found {
		t.Fatal("the runbook has no list of its entries")
	}
	first, list, found := strings.Cut(list, "\n## Entries\n")
	if !found {
		t.Fatal("the runbook has no table of the pages")
	}
	listed := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^- \[.*\]\(#(.*?)\)(.*)$`).FindAllStringSubmatch(list, -1) {
		listed[line[1]] = line[2]
	}
	anchor := ""
	alert := regexp.MustCompile("`(\\w+)` \\((?:page|ticket)\\)")
	for line := range strings.Lines(entries) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			anchor = strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
			if _, ok := listed[anchor]; !ok {
				t.Errorf("the list lacks %s", anchor)
			}
		}
		if !strings.HasPrefix(line, "Alert") {
			continue
		}
		for _, name := range alert.FindAllStringSubmatch(line, -1) {
			row := regexp.MustCompile("(?m)^\\| .*`" + name[1] + "`.*\\(#" + regexp.QuoteMeta(anchor) + "\\)")
			if strings.HasSuffix(name[0], "(page)") && !row.MatchString(first) {
				t.Errorf("the table of the pages does not lead from %s to %s", name[1], anchor)
			}
			if !strings.Contains(listed[anchor], "`"+name[1]+"`") {
				t.Errorf("the list does not name %s at %s", name[1], anchor)
			}
		}
	}
}

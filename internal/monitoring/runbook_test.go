package monitoring

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	section   = regexp.MustCompile(`(?m)^## (.*)$`)
	alertLine = regexp.MustCompile(`(?m)^Alerts?: (.*)\.$`)
	alertName = regexp.MustCompile("`(\\w+)`")
)

// TestEachAlertHasAnEntry compares the alerts with the runbook in both directions: an entry
// names its alerts in its first line, with their severity.
func TestEachAlertHasAnEntry(t *testing.T) {
	t.Parallel()
	text := read(t, "docs/runbook.md")
	heads := section.FindAllStringSubmatchIndex(text, -1)
	named := map[string][]string{} // by heading
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		heading, body := text[h[2]:h[3]], text[h[1]:end]
		line := alertLine.FindStringSubmatch(body)
		if line == nil {
			continue
		}
		if !strings.HasPrefix(strings.TrimSpace(body), line[0]) {
			t.Errorf("%q does not name its alerts first", heading)
		}
		for _, name := range alertName.FindAllStringSubmatch(line[1], -1) {
			named[heading] = append(named[heading], name[1])
			if !slices.ContainsFunc(Alerts, func(a Alert) bool { return a.Name == name[1] && a.Entry == heading }) {
				t.Errorf("the entry %q names %s, which is no alert of it", heading, name[1])
			}
		}
	}
	for _, a := range Alerts {
		if !slices.Contains(named[a.Entry], a.Name) {
			t.Errorf("%s: the runbook has no entry %q that names it", a.Name, a.Entry)
		}
		if want := "`" + a.Name + "` (" + string(a.Severity) + ")"; !strings.Contains(text, want) {
			t.Errorf("the runbook does not say %s", want)
		}
	}
}

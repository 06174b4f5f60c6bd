package monitoring

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Rules returns the alerts on the services' own metrics as a rule file of Prometheus. It divides
// each duration in an alert by faster. These durations are the windows, the limits of ages, and the
// time for which an expression has to hold. faster is 1, except in a file for tests with real
// faults.
func Rules(faster int) string {
	var b strings.Builder
	b.WriteString("# Generated from internal/monitoring by `make generate`. DO NOT EDIT.\n" +
		"# The alerts on the services' own metrics, for any Prometheus.\ngroups:\n  - name: lockstep\n    rules:\n")
	for _, a := range Alerts {
		if !a.Google {
			b.WriteString(a.sooner(faster).rule())
		}
	}
	return b.String()
}

// rule returns the alert as an entry of a rule file. It quotes texts as Go does, which YAML
// accepts.
func (a Alert) rule() string {
	return fmt.Sprintf("      - alert: %s\n        expr: %s\n        for: %ds\n        labels: {severity: %s}\n"+
		"        annotations:\n          summary: %s\n          runbook: %s\n",
		a.Name, strconv.Quote(a.Expr), a.For, a.Severity, strconv.Quote(a.Summary), strconv.Quote("docs/runbook.md"+a.Anchor()))
}

var (
	windows  = regexp.MustCompile(`\[(\d+)([mhd])\]`)
	ageLimit = regexp.MustCompile(`(age_seconds\)?) > (\d+)`)
	units    = map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
)

// sooner returns the alert with its durations divided by faster.
func (a Alert) sooner(faster int) Alert {
	if faster == 1 {
		return a
	}
	a.For /= faster
	a.Expr = windows.ReplaceAllStringFunc(a.Expr, func(window string) string {
		m := windows.FindStringSubmatch(window)
		n, _ := strconv.Atoi(m[1]) // cannot fail, because the match has digits only
		return fmt.Sprintf("[%dms]", (time.Duration(n) * units[m[2]] / time.Duration(faster)).Milliseconds())
	})
	a.Expr = ageLimit.ReplaceAllStringFunc(a.Expr, func(limit string) string {
		m := ageLimit.FindStringSubmatch(limit)
		n, _ := strconv.Atoi(m[2])
		return fmt.Sprintf("%s > %g", m[1], float64(n)/float64(faster))
	})
	return a
}

package monitoring

import (
	"regexp"
	"strings"
)

var (
	matchers  = regexp.MustCompile(`\{[^}]*\}`)
	groupings = regexp.MustCompile(`\b(?:by|without|on|ignoring) ?\(([^)]*)\)`)
	words     = regexp.MustCompile(`[a-z][a-z0-9_:]*\b`)
)

// Names are the names of the series in a PromQL expression of this package's tables, whose
// metrics all have an underscore.
func Names(expr string) (names []string) {
	expr = groupings.ReplaceAllString(matchers.ReplaceAllString(expr, ""), "")
	for _, word := range words.FindAllString(expr, -1) {
		if strings.Contains(word, "_") && word != "histogram_quantile" {
			names = append(names, word)
		}
	}
	return names
}

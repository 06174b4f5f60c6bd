package operator

import (
	"errors"
	"strings"
	"testing"
)

// The bar of a part that has failed is never whole, and empty if nothing is known of the part.
func TestTheLastBar(t *testing.T) {
	t.Parallel()
	failed := errors.New("the owner does not answer")
	for name, tc := range map[string]struct {
		done, total int64
		err         error
		full        int
	}{
		"done":                         {6, 9, nil, barWidth},
		"nothing to do":                {0, 0, nil, barWidth},
		"failed in the middle":         {3, 6, failed, barWidth / 2},
		"failed above the estimate":    {9, 6, failed, barWidth - 1},
		"failed at the last row":       {6, 6, failed, barWidth - 1},
		"failed before the first row":  {0, 6, failed, 0},
		"failed before its estimation": {0, 0, failed, 0},
	} {
		var said strings.Builder
		p := progress{to: &said, terminal: true}
		p.begin("rows", tc.total)
		p.done = tc.done
		p.end(tc.err)
		if n := strings.Count(said.String(), "="); n != tc.full {
			t.Errorf("%s: %d of %d: %q", name, n, barWidth, said.String())
		}
	}
}

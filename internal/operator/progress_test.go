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
		"failed without an estimate":   {3, 0, failed, 0},
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

// A table that was never analysed has the estimate 0, and one that has grown since has a low one. Neither is shown as a
// total: every line would say that all rows are done.
func TestATotalIsShownIfItIsPossible(t *testing.T) {
	t.Parallel()
	for total, want := range map[int64]string{
		0: "video: 3 rows\n", 2: "video: 3 rows\n", 3: "video: 3 of about 3 rows\n", 6: "video: 3 of about 6 rows\n",
	} {
		var said strings.Builder
		p := progress{to: &said, unit: "rows"}
		p.begin("video", total)
		p.done = 3
		p.show()
		if said.String() != want {
			t.Errorf("3 rows, the estimate is %d: %q, want %q", total, said.String(), want)
		}
	}
}

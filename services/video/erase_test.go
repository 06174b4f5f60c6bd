package video

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// An erasure goes on behind each page, and begins again for what was made meanwhile: its cost
// is linear in the user's rows. From the start it would pass its own tombstones for each page.
func TestAnErasureContinuesBehindAPage(t *testing.T) {
	t.Parallel()
	left := map[string][]int{"": {9, 8}, "8": {7, 6}, "6": {5}}
	next := map[string]string{"": "8", "8": "6"}
	var asked []string
	list := func(ctx context.Context, token string) (page []int, behind string, err error) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("a page has no time limit")
		}
		asked = append(asked, token)
		page, left[token] = left[token], nil
		return page, next[token], nil
	}
	var removed []int
	remove := func(row int) error {
		removed = append(removed, row)
		if row == 5 {
			left[""] = []int{10} // the user's, meanwhile
		}
		return nil
	}
	if err := removeAll(t.Context(), list, remove); err != nil || !slices.Equal(removed, []int{9, 8, 7, 6, 5, 10}) {
		t.Errorf("removed %v, %v", removed, err)
	}
	if pass := []string{"", "8", "6"}; !slices.Equal(asked, slices.Repeat(pass, 3)) {
		t.Errorf("asked for the pages behind %q, want each once a pass", asked)
	}

	failed := errors.New("failed")
	left[""] = []int{11}
	if err := removeAll(t.Context(), list, func(int) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a row that cannot be removed: %v", err)
	}
	if err := removeAll(t.Context(), func(context.Context, string) ([]int, string, error) { return nil, "", failed }, remove); !errors.Is(err, failed) {
		t.Errorf("a list that fails: %v", err)
	}
}

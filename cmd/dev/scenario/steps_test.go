package scenario

import (
	"errors"
	"testing"
)

// The first step that fails ends a scenario with its error. A bug is no failed step.
func TestAttempt(t *testing.T) {
	t.Parallel()
	away := errors.New("it is away")
	value := func(v int, err error) (int, error) { return v, err }
	seen := 0
	err := attempt(func() {
		must(nil)
		seen = got(value(7, nil))
		got(value(8, away))
		seen = 9
	})
	if !errors.Is(err, away) || seen != 7 {
		t.Errorf("%v after %d", err, seen)
	}
	if err := attempt(func() { failf("%d are lost: %w", 3, away) }); err == nil || err.Error() != "3 are lost: it is away" || !errors.Is(err, away) {
		t.Error(err)
	}
	if err := attempt(func() {}); err != nil {
		t.Error(err)
	}
	defer func() {
		if p := recover(); p != "a bug" {
			t.Errorf("recovered %v", p)
		}
	}()
	_ = attempt(func() { panic("a bug") })
}

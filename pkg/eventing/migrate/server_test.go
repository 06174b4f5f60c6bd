package migrate

import "testing"

// A newer major version than those of the fault is safe.
func TestServersWithAFault(t *testing.T) {
	t.Parallel()
	for version, want := range map[int]bool{
		150008: true, 150009: false, 150018: false, 160004: true, 160005: false, 170000: true, 170001: false, 180000: false,
	} {
		if got := unsafe(version); got != want {
			t.Errorf("%d: %v, want %v", version, got, want)
		}
	}
}

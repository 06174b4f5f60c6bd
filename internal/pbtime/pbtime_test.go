package pbtime

import (
	"testing"
	"time"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	if Proto(nil) != nil || Time(nil) != nil {
		t.Errorf("nil becomes %v and %v, want nil", Proto(nil), Time(nil))
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 891011000, time.FixedZone("", 3600))
	if got := Time(Proto(&at)); !got.Equal(at) || got.Location() != time.UTC {
		t.Errorf("%s becomes %s", at, got)
	}
}

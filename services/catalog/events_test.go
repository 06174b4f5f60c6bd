package catalog

import (
	"testing"
	"time"
)

func TestTimesInMessages(t *testing.T) {
	t.Parallel()
	if timestamp(nil) != nil || timeOf(nil) != nil {
		t.Errorf("nil becomes %v and %v, want nil", timestamp(nil), timeOf(nil))
	}
	at := time.Date(2026, 3, 4, 5, 6, 7, 891011000, time.FixedZone("", 3600))
	if got := timeOf(timestamp(&at)); !got.Equal(at) || got.Location() != time.UTC {
		t.Errorf("%s becomes %s", at, got)
	}
}

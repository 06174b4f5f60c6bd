package consistency_test

import (
	"testing"
	"testing/synctest"
	"time"

	"example.com/lockstep/pkg/eventing/consistency"
)

// FuzzRead reads with any demand, of any copy and owner. No read waits beyond its
// bounds, and none gets data that is older than its token unless the demand allows it.
func FuzzRead(f *testing.F) {
	for n := range int64(12) {
		f.Add(int64(1), n%4, int64(1), n%3, int64(1), n%5, n*int64(time.Second), n%3*int64(time.Second), uint8(n), uint8(n/2), n%2 == 0)
	}
	f.Add(int64(2), int64(1), int64(1), int64(9), int64(2), int64(1), int64(1)<<62, int64(1), uint8(0), uint8(2), true)
	f.Fuzz(func(t *testing.T, epoch, version, copyEpoch, copyVersion, ownerEpoch, ownerVersion, wait, deadline int64, mode, owners uint8, stale bool) {
		modes := []consistency.Mode{"", consistency.AtLeastAsFresh, consistency.MinimizeLatency, consistency.FullyConsistent}
		wanted := has{epoch, version}
		if copyVersion < 1 {
			copyEpoch, copyVersion = 0, 0 // a copy without the aggregate
		}
		r := read{
			Request: consistency.Request{Token: wanted.token(), Mode: modes[int(mode)%len(modes)], StaleIfError: stale, Wait: time.Duration(wait)},
			copy:    has{copyEpoch, copyVersion}, owner: has{ownerEpoch, ownerVersion}, owners: answers(owners) % 3,
			deadline: time.Duration(max(deadline, 0)),
		}
		if _, err := consistency.Parse(r.Token); err != nil {
			t.Skip("TestARead's tokens are valid")
		}
		synctest.Test(t, func(t *testing.T) {
			outcome, took, err := r.do(t)
			if bound := min(max(r.Wait, 0), consistency.MaxWait) + consistency.FetchTimeout; took > bound || r.deadline > 0 && took > r.deadline {
				t.Errorf("%+v took %s", r, took)
			}
			reached := func(h has) bool { return wanted.position().Reached(h.epoch, h.version) }
			ok := false
			switch outcome {
			case consistency.Fresh, consistency.Waited:
				ok = reached(r.copy) && r.Mode != consistency.FullyConsistent
			case consistency.Authority:
				ok = r.asked && r.owners == atOnce && reached(r.owner)
			case consistency.Stale:
				ok = stale && r.copy.version > 0 || r.Mode == consistency.MinimizeLatency
			case consistency.Failed:
				ok = err != nil
			}
			if !ok || (err != nil) != (outcome == consistency.Failed) {
				t.Errorf("%+v is %s, %v", r, outcome, err)
			}
		})
	})
}

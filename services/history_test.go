package services_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sighting is one message of video.events as a subscriber got it.
type sighting struct {
	event   string
	video   string
	version int64
	at      time.Time // when the broker took it, by its clock
}

// orphan is an event that was committed, and not marked as published, when a
// relay was killed.
type orphan struct {
	holder string // the lease it was under; empty for none
	since  time.Time
}

// history is what a run of writers, relays and kills left behind.
type history struct {
	committed map[string]int64  // each video's version: it has all events up to it
	sightings []sighting        // in the order in which the broker took them
	orphans   map[string]orphan // by event
}

func newHistory() *history {
	return &history{committed: map[string]int64{}, orphans: map[string]orphan{}}
}

// killed notes what a kill left behind: the leases of all unpublished events. An
// event that is still under the lease of an earlier kill has been waiting since
// then; one under a new lease was claimed by a living relay in between, and its
// wait begins anew.
func (h *history) killed(at time.Time, leases map[string]string) {
	for event, holder := range leases {
		if o, known := h.orphans[event]; !known || o.holder != holder {
			h.orphans[event] = orphan{holder: holder, since: at}
		}
	}
}

// verdict counts what a history shows.
type verdict struct {
	events     int           // committed
	deliveries int           // messages seen
	duplicates int           // of them, those of an event seen before
	disorder   int           // events first seen before their predecessor
	losses     int           // committed, never seen
	strays     int           // seen, never committed, or two of one version
	orphans    int           // events that waited behind a kill
	slowest    time.Duration // the longest such wait, from the kill to the broker
}

func (v verdict) String() string {
	return fmt.Sprintf("%d events, %d deliveries, %d duplicates, %d order violations, %d losses, %d strays; "+
		"%d events waited behind a kill, the longest %s",
		v.events, v.deliveries, v.duplicates, v.disorder, v.losses, v.strays, v.orphans, v.slowest.Round(time.Millisecond))
}

// position is one version of one video.
type position struct {
	video   string
	version int64
}

// check judges h. Repeats of what was seen are allowed anywhere.
func (h *history) check() verdict {
	var v verdict
	first := map[position]sighting{}
	for _, s := range h.sightings {
		v.deliveries++
		at := position{s.video, s.version}
		seen, repeated := first[at]
		switch {
		case repeated && seen.event == s.event:
			v.duplicates++
			continue
		case repeated || s.version < 1 || s.version > h.committed[s.video]:
			v.strays++
			continue
		}
		if _, ok := first[position{s.video, s.version - 1}]; !ok && s.version > 1 {
			v.disorder++
		}
		first[at] = s
	}
	for _, last := range h.committed {
		v.events += int(last)
	}
	v.losses = v.events - len(first)
	v.orphans, v.slowest = h.waits(first)
	return v
}

// waits leaves out what had reached the broker before the kill and only its mark
// was missing.
func (h *history) waits(first map[position]sighting) (n int, slowest time.Duration) {
	for _, s := range first {
		if o, ok := h.orphans[s.event]; ok && s.at.After(o.since) {
			n++
			slowest = max(slowest, s.at.Sub(o.since))
		}
	}
	return n, slowest
}

// TestHistoryCheckBites gives the checker histories that break each promise.
func TestHistoryCheckBites(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	see := func(event string, version int64, after time.Duration) sighting {
		return sighting{event: event, video: "v", version: version, at: start.Add(after)}
	}
	for name, tc := range map[string]struct {
		sightings []sighting
		want      verdict
	}{
		"all in order": {
			[]sighting{see("a", 1, 1), see("b", 2, 2), see("c", 3, 3)},
			verdict{events: 3, deliveries: 3},
		},
		"repeats of what was seen": {
			[]sighting{see("a", 1, 1), see("b", 2, 2), see("a", 1, 3), see("b", 2, 4), see("c", 3, 5), see("c", 3, 6)},
			verdict{events: 3, deliveries: 6, duplicates: 3},
		},
		"a version before its predecessor": {
			[]sighting{see("a", 1, 1), see("c", 3, 2), see("b", 2, 3)},
			verdict{events: 3, deliveries: 3, disorder: 1},
		},
		"the first version late": {
			[]sighting{see("b", 2, 1), see("a", 1, 2), see("c", 3, 3)},
			verdict{events: 3, deliveries: 3, disorder: 1},
		},
		"a loss at the end": {
			[]sighting{see("a", 1, 1), see("b", 2, 2)},
			verdict{events: 3, deliveries: 2, losses: 1},
		},
		"a loss in the middle is disorder too": {
			[]sighting{see("a", 1, 1), see("c", 3, 2)},
			verdict{events: 3, deliveries: 2, disorder: 1, losses: 1},
		},
		"nothing": {nil, verdict{events: 3, losses: 3}},
		"an event that was rolled back": {
			[]sighting{see("a", 1, 1), see("b", 2, 2), see("c", 3, 3), see("d", 4, 4)},
			verdict{events: 3, deliveries: 4, strays: 1},
		},
		"two events of one version": {
			[]sighting{see("a", 1, 1), see("b", 2, 2), see("x", 2, 3), see("c", 3, 4)},
			verdict{events: 3, deliveries: 4, strays: 1},
		},
	} {
		h := newHistory()
		h.committed["v"], h.sightings = 3, tc.sightings
		if diff := cmp.Diff(tc.want, h.check(), cmp.AllowUnexported(verdict{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestHistoryMeasuresFromTheKill covers the clock behind the promised 30 s.
func TestHistoryMeasuresFromTheKill(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	h := newHistory()
	h.committed = map[string]int64{"before": 1, "stuck": 1, "reclaimed": 1, "after": 1}
	h.killed(at(10), map[string]string{"before": "lease1", "stuck": "lease1", "reclaimed": "lease1"})
	h.killed(at(20), map[string]string{"stuck": "lease1", "reclaimed": "lease2"})
	for event, seconds := range map[string]int{"before": 9, "stuck": 35, "reclaimed": 41, "after": 60} {
		h.sightings = append(h.sightings, sighting{event: event, video: event, version: 1, at: at(seconds)})
	}
	v := h.check()
	if v.orphans != 2 || v.slowest != 25*time.Second {
		t.Errorf("%d orphans, the slowest after %s; want 2 and 25s", v.orphans, v.slowest)
	}
}

package history

import (
	"fmt"
	"time"
)

// Summary counts the publishing records of a history.
type Summary struct {
	Writes    int // events that were committed
	Lost      int // writes that the owner has lost
	Published int // messages that the broker took
	Repeats   int // messages with an event that the broker had taken before
	Orphans   int // events that waited behind a kill
	// Slowest is the longest wait behind a kill, from the kill until the broker took the event.
	Slowest time.Duration
	// Reports are the divergences that were reported.
	Reports int
}

func (s Summary) String() string {
	return fmt.Sprintf("%d events, %d lost; %d messages, %d of them repeats; %d waited behind a kill, the longest %s; %d divergences reported",
		s.Writes, s.Lost, s.Published, s.Repeats, s.Orphans, s.Slowest.Round(time.Millisecond), s.Reports)
}

// Summarize counts the records. Orphans and Slowest leave out an event that the broker had taken
// before the kill. Such an event lacked only its mark as published.
func Summarize(records []Record) Summary {
	s := Summary{Writes: len(life(records).of(Write)), Lost: len(life(records).of(Lost)), Reports: len(life(records).of(Report))}
	first := map[string]time.Time{}
	for _, r := range records {
		if r.Kind != Publish {
			continue
		}
		s.Published++
		if _, again := first[r.Event]; again {
			s.Repeats++
			continue
		}
		first[r.Event] = r.At
	}
	for event, o := range life(records).orphans() {
		if at, ok := first[event]; ok && at.After(o.At) {
			s.Orphans++
			s.Slowest = max(s.Slowest, at.Sub(o.At))
		}
	}
	return s
}

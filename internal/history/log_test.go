package history

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestLogKeepsWhatSeveralAppend(t *testing.T) {
	t.Parallel()
	log, path := New(t)
	another, err := Open(path) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	defer another.Close()
	full := Record{
		Kind: Read, At: time.Now().UTC(), Process: "p", Aggregate: "video/a", Epoch: 1, Version: 2, Event: "e", Token: "t",
		Request: "r", Lease: "l", Change: Delta, State: "{}\n", Least: 3, Mode: "m", Outcome: Stale, Note: "n",
	}
	var writing sync.WaitGroup
	for _, l := range []*Log{log, another} {
		writing.Go(func() {
			for range 100 {
				if err := l.Add(full, full); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	records, err := log.Records()
	if err != nil || len(records) != 400 {
		t.Fatalf("%d records, %v; want 400", len(records), err)
	}
	if i := slices.IndexFunc(records, func(r Record) bool { return r != full }); i >= 0 {
		t.Errorf("record %d is %+v, want %+v", i, records[i], full)
	}
}

// A process that is killed while it writes damages only its own last line.
func TestLogPassesOverATornLine(t *testing.T) {
	t.Parallel()
	log, path := New(t)
	if err := log.Add(e1); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("\n{\"kind\":\"write\",\"aggre"); err != nil {
		t.Fatal(err)
	}
	if err := log.Add(e2); err != nil {
		t.Fatal(err)
	}
	records, err := log.Records()
	if err != nil || !slices.Equal(records, []Record{e1, e2}) {
		t.Errorf("%v, %v; want the two whole records", records, err)
	}
	if _, err := file.WriteString("\nno record\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Records(); err == nil {
		t.Error("a line that no log wrote passes")
	}
}

func TestSummaryMeasuresFromTheKill(t *testing.T) {
	t.Parallel()
	var records []Record
	see := func(event string, kind Kind, seconds int, lease string) {
		records = append(records, write(event, 1).as(kind).when(seconds, lease))
	}
	for event, seconds := range map[string]int{"before": 9, "stuck": 35, "reclaimed": 41, "after": 60} {
		see(event, Publish, seconds, "")
		see(event, Publish, seconds+1, "")
	}
	for _, event := range []string{"before", "stuck", "reclaimed"} {
		see(event, Orphan, 10, "lease1")
	}
	see("stuck", Orphan, 20, "lease1")
	see("reclaimed", Orphan, 20, "lease2")
	want := Summary{Published: 8, Repeats: 4, Orphans: 2, Slowest: 25 * time.Second}
	if got := Summarize(records); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

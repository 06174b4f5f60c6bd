package history

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The tests use the versions of one aggregate; the event of version n is "e<n>".

func write(event string, version int64) Record {
	return Record{Kind: Write, Aggregate: "a", Epoch: 1, Version: version, Event: event, State: "after " + event}
}

// as is w's event in a record of another kind.
func (r Record) as(kind Kind) Record {
	r.Kind, r.State = kind, ""
	return r
}

func (r Record) in(request string) Record {
	r.Request = request
	return r
}

func (r Record) when(seconds int, lease string) Record {
	r.At, r.Lease = time.Date(2026, 1, 1, 0, 0, seconds, 0, time.UTC), lease
	return r
}

func (r Record) state(s string) Record {
	r.State = s
	return r
}

func (r Record) inEpoch(epoch int64) Record {
	r.Epoch = epoch
	return r
}

func (r Record) read(least int64, mode string, outcome Outcome) Record {
	r.Kind, r.Event, r.State, r.Least, r.Mode, r.Outcome = Read, "", "", least, mode, outcome
	return r
}

var (
	e1, e2, e3 = write("e1", 1), write("e2", 2), write("e3", 3)
	other2     = write("x2", 2)
	other3     = write("x3", 3)
	// fromOwner is version 2 as a repair writes it: without an event.
	fromOwner = Record{Kind: Apply, Aggregate: "a", Epoch: 1, Version: 2, Change: Repair, State: "after e2"}
)

func applied(w Record, c Change) Record {
	w.Kind, w.Change = Apply, c
	return w
}

// taken is a run in which the owner committed these, and the broker took all.
func taken(writes ...Record) []Record {
	all := slices.Clone(writes)
	for _, w := range writes {
		all = append(all, w.as(Publish))
	}
	return all
}

// ends are an owner and a read model that agree on w.
func ends(w Record) []Record {
	w.Event = ""
	owner, copied := w, w
	owner.Kind, copied.Kind = Owner, Copy
	return []Record{owner, copied}
}

func run(parts ...[]Record) []Record { return slices.Concat(parts...) }

func of(records ...Record) []Record { return records }

var three, two = taken(e1, e2, e3), taken(e1, e2)

// planted has each kind of violation, next to the most similar history that keeps the
// promise.
var planted = map[string]struct {
	history []Record
	want    string // the promises broken, each once; empty for none
}{
	"nothing": {nil, ""},

	"P1: all in order":                  {three, ""},
	"P1: published, never committed":    {run(two, of(e3.as(Publish))), "P1"},
	"P1: sent, never committed":         {run(two, of(e1.as(Acknowledge), e2.as(Acknowledge), e3.as(Send))), "P1"},
	"P1: two events of one version":     {taken(e1, e2, other2), "P1"},
	"P1: of which one was lost":         {run(taken(e1, e2, other2), of(e2.as(Lost))), ""},
	"P1: another event of a version":    {run(two, of(other2.as(Publish))), "P1"},
	"P1: an event at another version":   {run(two, of(write("e2", 3).as(Publish))), "P1"},
	"P1: a version is missing":          {taken(e1, e3), "P1"},
	"P1: a later epoch goes on":         {taken(e1, write("e2", 2).inEpoch(2)), ""},
	"P1: answered and committed":        {run(two, of(e2.as(Answer))), ""},
	"P1: answered, never committed":     {run(two, of(e3.as(Answer))), "P1"},
	"P1: answered and lost":             {run(two, of(e2.as(Answer), e2.as(Lost))), ""},
	"P1: the owner has its last event":  {run(two, of(e2.as(Owner))), ""},
	"P1: the owner lacks its event":     {run(two, of(e3.as(Owner))), "P1"},
	"P1: the owner lost its last event": {run(two, of(e2.as(Lost), e1.as(Owner))), ""},

	"P2: never published":                {run(of(e1, e2), of(e1.as(Publish))), "P2"},
	"P2: none published":                 {of(e1), "P2"},
	"P2: never published, but lost":      {run(of(e1, e2), of(e1.as(Publish), e2.as(Lost))), ""},
	"P2: a loss in the middle":           {of(e1, e2, e3, e1.as(Publish), e3.as(Publish)), "P2 P3"},
	"P2: 30 s behind a kill":             {of(e1, e1.as(Orphan).when(10, "l"), e1.as(Publish).when(40, "")), ""},
	"P2: 31 s behind a kill":             {of(e1, e1.as(Orphan).when(10, "l"), e1.as(Publish).when(41, "")), "P2"},
	"P2: still behind the first of two":  {of(e1, e1.as(Orphan).when(10, "l"), e1.as(Orphan).when(20, "l"), e1.as(Publish).when(41, "")), "P2"},
	"P2: claimed between two kills":      {of(e1, e1.as(Orphan).when(10, "l"), e1.as(Orphan).when(20, "m"), e1.as(Publish).when(41, "")), ""},
	"P3: repeats of older versions":      {run(three, of(e1.as(Publish), e2.as(Publish), e3.as(Publish), e2.as(Publish))), ""},
	"P3: published before predecessor":   {of(e1, e2, e3, e1.as(Publish), e3.as(Publish), e2.as(Publish)), "P3"},
	"P3: the first version late":         {of(e1, e2, e2.as(Publish), e1.as(Publish)), "P3"},
	"P3: sent behind it in a request":    {run(two, of(e1.as(Send).in("r"), e2.as(Send).in("r"))), ""},
	"P3: sent before it in a request":    {run(two, of(e2.as(Send).in("r"), e1.as(Send).in("r"))), "P3"},
	"P3: sent after its acknowledgement": {run(two, of(e1.as(Send).in("r"), e1.as(Acknowledge), e2.as(Send).in("s"))), ""},
	"P3: sent before the answer":         {run(two, of(e1.as(Send).in("r"), e2.as(Send).in("s"), e1.as(Acknowledge))), "P3"},
	"P3: the new owner's order":          {run(taken(e1, e2, e3), of(e2.as(Lost), e3.as(Lost), other2, other3, other2.as(Publish), other3.as(Publish))), ""},
	"P3: the new owner's disorder":       {run(taken(e1, e2, e3), of(e2.as(Lost), e3.as(Lost), other2, other3, other3.as(Publish), other2.as(Publish))), "P3"},

	"P5: delivered twice, settled once":     {run(two, of(e2.as(Deliver), e2.as(Deliver), e2.as(Effect))), ""},
	"P5: settled twice":                     {run(two, of(e2.as(Effect), e2.as(Effect))), "P5"},
	"P5: settled, forgotten, settled":       {run(two, of(e2.as(Effect), e2.as(Forget), e2.as(Effect))), ""},
	"P5: forgotten once, settled 3 times":   {run(two, of(e2.as(Effect), e2.as(Forget), e2.as(Effect), e2.as(Effect))), "P5"},
	"P5: settled, and seen when forgotten":  {run(two, of(e2.as(Deliver), e2.as(Forget))), ""},
	"P5: delivered, never settled":          {run(two, of(e2.as(Deliver))), "P5"},
	"P5: a forgotten event changes a row":   {run(two, ends(e2), of(applied(e1, Created), applied(e2, Delta), e2.as(Forget), applied(e2, Delta))), "P5 P6 P7"},
	"P6: forward by events":                 {run(three, ends(e3), of(applied(e1, Created), applied(e2, Delta), applied(e3, Delta))), ""},
	"P6: back by the owner's state":         {run(three, ends(e3), of(applied(e1, Created), fromOwner, applied(e3, Delta), fromOwner)), "P6"},
	"P6: the same version again":            {run(two, ends(e2), of(applied(e1, Created), fromOwner, fromOwner)), "P6"},
	"P6: back, and reported":                {run(three, ends(e2), of(e3.as(Lost), applied(e1, Created), applied(e2, Delta), applied(e3, Delta), fromOwner, e3.as(Report))), ""},
	"P6: back twice, and reported once":     {run(three, ends(e2), of(e3.as(Lost), applied(e1, Created), fromOwner, fromOwner, fromOwner, e3.as(Report))), "P6"},
	"P6: a deletion lasts":                  {run(two, ends(e2), of(applied(e1, Created), applied(e2, Deleted))), ""},
	"P6: a deletion does not last":          {run(three, ends(e3), of(applied(e1, Created), applied(e2, Deleted), applied(e3, Repair))), "P6"},
	"P6: one that returns":                  {run(three, ends(e3), of(applied(e1, Whole), applied(e2, Deleted), applied(e3, Whole))), ""},
	"P6: a later epoch undoes a deletion":   {run(taken(e1, e2, e3.inEpoch(2)), ends(e3.inEpoch(2)), of(applied(e1, Created), applied(e2, Deleted), applied(e3.inEpoch(2), Repair))), ""},
	"P7: a difference on another version":   {run(three, ends(e3), of(applied(e1, Created), applied(e3, Delta))), "P7"},
	"P7: a difference behind a repair":      {run(three, ends(e3), of(fromOwner, applied(e3, Delta))), ""},
	"P7: a difference on another epoch":     {run(taken(e1, e2.inEpoch(2)), ends(e2.inEpoch(2)), of(applied(e1, Created), applied(e2.inEpoch(2), Delta))), "P7"},
	"P7: a creation on something":           {run(two, ends(e2), of(applied(e1, Created), applied(e2, Created))), "P7"},
	"P7: a state that never was":            {run(two, ends(e2), of(applied(e1, Created), applied(e2, Delta).state("after e1 and e3"))), "P7"},
	"P7: a lost write, reported":            {run(taken(e1, e2, other2), ends(other2), of(e2.as(Lost), applied(e1, Created), applied(e2, Delta), e2.as(Report), applied(other2, Repair))), ""},
	"P7: a lost write under a later repair": {run(taken(e1, e2, other2, other3), ends(other3), of(e2.as(Lost), applied(e1, Created), applied(e2, Delta), applied(other3, Repair))), ""},
	"P7: a lost write, applied in silence":  {run(taken(e1, e2, other2, other3), ends(other3), of(e2.as(Lost), applied(e1, Created), applied(e2, Delta), applied(other3, Delta))), "P7"},

	"P8: as fresh as asked":      {run(two, of(e2.read(2, "", Shown))), ""},
	"P8: fresher":                {run(two, of(e2.read(1, "", Shown))), ""},
	"P8: older":                  {run(two, of(e1.read(2, "", Shown))), "P8"},
	"P8: older, and says so":     {run(two, of(e1.read(2, "", Stale))), "P8"},
	"P8: older by leave":         {run(two, of(e1.read(2, "minimize-latency", Stale))), ""},
	"P8: older by leave, silent": {run(two, of(e1.read(2, "minimize-latency", Shown))), "P8"},
	"P8: not there by leave":     {run(two, of(e1.read(2, "minimize-latency", Absent))), ""},
	"P8: not there":              {run(two, of(e1.read(2, "at-least-as-fresh;stale-if-error", Absent))), "P8"},
	"P8: refused":                {run(two, of(e1.read(2, "", Unavailable))), ""},
	"P8: an unknown answer":      {run(two, of(e2.read(2, "", Unexpected))), "P8"},

	"P10: behind":               {run(two, of(e2.as(Owner), e1.as(Copy))), "P10"},
	"P10: another state":        {run(two, ends(e2.state("more")), of(e2.as(Copy).state("less"))), "P10"},
	"P10: of nothing":           {run(two, of(e2.as(Copy))), "P10"},
	"P10: not there":            {run(two, of(e2.as(Owner), applied(e1, Created), applied(e2, Delta))), "P10"},
	"P10: no read model at all": {run(two, of(e2.as(Owner))), ""},
}

// TestCheckFindsViolations: the checker finds the planted violations, and no others.
func TestCheckFindsViolations(t *testing.T) {
	t.Parallel()
	for name, test := range planted {
		var broken []string
		for _, v := range Check(test.history) {
			broken = append(broken, v.Promise)
		}
		slices.Sort(broken)
		if got := strings.Join(slices.Compact(broken), " "); got != test.want {
			t.Errorf("%s: broken are %q, want %q: %v", name, got, test.want, Check(test.history))
		}
	}
}

// Each aggregate is checked on its own.
func TestCheckSeparatesAggregates(t *testing.T) {
	t.Parallel()
	of := func(r Record, aggregate string) Record {
		r.Aggregate = aggregate
		return r
	}
	found := Check([]Record{e1, of(e2, "b"), e1.as(Publish), of(e2, "b").as(Publish)})
	if len(found) != 1 || found[0].Aggregate != "b" || !strings.Contains(found[0].String(), `"event":"e2"`) {
		t.Errorf("found %v, want the missing version of b", found)
	}
}

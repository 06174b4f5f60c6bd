package operator

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
)

// results is the part of a redrive's or discard's JSON that the tests read.
type results struct {
	DryRun  bool `json:"dry_run"`
	Note    string
	Results []struct {
		EventID uuid.UUID `json:"event_id"`
		Result  string
		Error   string
	}
}

// by returns each event's result, or error.
func (r results) by() map[uuid.UUID]string {
	said := map[uuid.UUID]string{}
	for _, one := range r.Results {
		said[one.EventID] = one.Result + one.Error
	}
	return said
}

// letterList is the part of a list's JSON that the tests read.
type letterList struct {
	Letters []struct {
		Subscription string
		EventID      uuid.UUID `json:"event_id"`
		MessageID    string    `json:"message_id"`
	} `json:"dead_letters"`
}

const (
	dead      = `SELECT count(*) FROM inbox WHERE status = 'dead'`
	projected = `SELECT coalesce(max(version), 0) FROM video_projection WHERE video_id = $1`
)

// An action that finds nothing to do was confirmed all the same.
func TestAnActionOnNoDeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for flags, dryRun := range map[string]bool{"--json": true, "--yes --why test": false} {
		for _, line := range []string{"dlq redrive --all", "dlq discard --all"} {
			var got results
			b.json(t, 0, line+" "+flags, &got)
			if got.DryRun != dryRun || len(got.Results) != 0 {
				t.Errorf("%s %s: %+v", line, flags, got)
			}
		}
	}
}

func TestDeadLettersListAndShow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, y := event(uuid.NewString(), 1), event(uuid.NewString(), 2)
	b.deadLetter(t, "title is\na teapot", x)
	b.deadLetter(t, "unknown schema", y)
	var list letterList
	for line, want := range map[string]int{
		"dlq list": 2, "dlq list --reason teapot": 1, "dlq list --aggregate " + y.AggregateID: 1, "dlq list --reason nothing": 0,
	} {
		b.json(t, 0, line, &list)
		if len(list.Letters) != want || list.Letters == nil || want > 0 && list.Letters[0].Subscription != subscription {
			t.Errorf("%s: %+v", line, list)
		}
	}
	for _, line := range []string{"dlq list", "dlq show " + x.ID.String()} {
		if stdout, _ := b.run(t, 0, line); !strings.Contains(stdout, x.ID.String()) || !strings.Contains(stdout, "title is a teapot") {
			t.Errorf("%s: %s", line, stdout)
		}
	}
	var shown struct {
		Letter     struct{ Reason string } `json:"dead_letter"`
		Attributes map[string]string
		Payload    []byte
	}
	b.json(t, 0, "dlq show "+y.ID.String(), &shown)
	if string(shown.Payload) != payload || shown.Attributes[eventing.AttrVersion] != "2" || shown.Letter.Reason != "unknown schema" {
		t.Errorf("show: %+v", shown)
	}
	if _, stderr := b.run(t, 1, "dlq show "+uuid.NewString()); !strings.Contains(stderr, "no such dead letter") {
		t.Errorf("show of nothing: %s", stderr)
	}
}

func TestRedriveIsADryRunWithoutYes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := event(uuid.NewString(), 1)
	b.deadLetter(t, "title is a teapot", e)
	var r results
	b.json(t, 0, "dlq redrive --all", &r)
	if !r.DryRun || len(r.Results) != 1 || count(t, b.catalog, dead) != 1 {
		t.Errorf("dry run: %+v", r)
	}
	if stdout, _ := b.run(t, 0, "dlq redrive "+e.ID.String()); !strings.Contains(stdout, "Nothing was changed") || count(t, b.catalog, dead) != 1 {
		t.Errorf("dry run: %s", stdout)
	}
	b.broken.Store(true)
	b.json(t, 1, "dlq redrive --all --yes --why test", &r)
	if !strings.Contains(r.by()[e.ID], "still a teapot") {
		t.Errorf("still broken: %+v", r)
	}
	b.broken.Store(false)
	if stdout, _ := b.run(t, 0, "dlq redrive --all --reason nothing"); !strings.Contains(stdout, "None of the 1 dead letters matches.") {
		t.Errorf("of a reason that none has: %s", stdout)
	}
	if stdout, stderr := b.run(t, 0, "dlq redrive --yes --why fixed "+e.ID.String()); !strings.Contains(stdout, "applied") ||
		count(t, b.catalog, dead) != 0 || count(t, b.catalog, projected, e.AggregateID) != 1 {
		t.Errorf("fixed: %s%s", stdout, stderr)
	}
	if n := count(t, b.catalog, `SELECT count(*) FROM operator_actions WHERE action = 'redrive' AND why = 'fixed'`); n != 1 {
		t.Error("the audit table does not say why")
	}
	b.json(t, 0, "dlq redrive --all --yes --why test", &r)
	if len(r.Results) != 0 {
		t.Errorf("nothing is left: %+v", r)
	}
	if stdout, _ := b.run(t, 0, "dlq show "+e.ID.String()); !strings.Contains(stdout, "redrive by ada (role catalog_service)") {
		t.Errorf("show of what was redriven: %s", stdout)
	}
}

func TestRedriveGoesInOrderPerAggregate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	aggregate, other := uuid.NewString(), uuid.NewString()
	one, two, three, free := event(aggregate, 1), event(aggregate, 2), event(aggregate, 3), event(other, 9)
	b.deadLetter(t, "title is a teapot", three, one, free, two)
	var r results
	b.json(t, 1, "dlq redrive --yes --why test "+two.ID.String()+" "+free.ID.String(), &r)
	if diff := cmp.Diff(map[uuid.UUID]string{two.ID: errBehind.Error(), free.ID: "applied"}, r.by()); diff != "" {
		t.Error(diff)
	}
	b.broken.Store(true)
	b.json(t, 1, "dlq redrive --all --yes --why test", &r)
	if r.by()[one.ID] != "still a teapot" || r.by()[two.ID] != errBehind.Error() || r.by()[three.ID] != errBehind.Error() {
		t.Errorf("behind a failure: %+v", r)
	}
	b.broken.Store(false)
	b.json(t, 0, "dlq discard --yes --why test "+one.ID.String(), &r)
	b.json(t, 0, "dlq redrive --all --yes --why test", &r)
	if diff := cmp.Diff(map[uuid.UUID]string{two.ID: "applied", three.ID: "applied"}, r.by()); diff != "" || count(t, b.catalog, projected, aggregate) != 3 {
		t.Error(diff)
	}
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, y := event(uuid.NewString(), 1), event(uuid.NewString(), 1)
	b.deadLetter(t, "title is a teapot", x)
	b.deadLetter(t, "unknown schema", y)
	var r results
	b.json(t, 0, "dlq discard --all --reason teapot", &r)
	if !r.DryRun || len(r.Results) != 1 || count(t, b.catalog, dead) != 2 || r.Note != asksOwner {
		t.Errorf("dry run: %+v", r)
	}
	b.ownerAway.Store(true)
	b.json(t, 1, "dlq discard --all --reason teapot --yes --why test", &r)
	if !strings.Contains(r.by()[x.ID], "owner is away") || count(t, b.catalog, dead) != 2 {
		t.Errorf("without the owner: %+v", r)
	}
	b.ownerAway.Store(false)
	b.json(t, 0, "dlq discard --all --reason teapot --yes --by bob --why nonsense", &r)
	if diff := cmp.Diff(map[uuid.UUID]string{x.ID: "discarded"}, r.by()); diff != "" || r.DryRun {
		t.Error(diff)
	}
	kept := `SELECT count(*) FROM operator_actions WHERE actor = 'bob' AND why = 'nonsense' AND event_id = $1 AND record->>'data' IS NOT NULL`
	if count(t, b.catalog, kept, x.ID) != 1 || count(t, b.catalog, dead) != 1 {
		t.Error("want the message kept, and the other one dead still")
	}
	if _, stderr := b.run(t, 1, "dlq discard --yes --why test "+x.ID.String()); !strings.Contains(stderr, "another command may have settled it") {
		t.Errorf("discard twice: %s", stderr)
	}
}

// Each consumer of the service has its own dead letters. A message that is no
// event is known by its message id only, which is unique within one topic.
func TestDeadLettersOfSeveralSubscriptions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	x, y := event(uuid.NewString(), 1), event(uuid.NewString(), 1)
	y.AggregateType = "other"
	b.deadLetter(t, "title is a teapot", x)
	b.deadLetterIn(t, otherSubscription, "a teapot, too", y)
	var list letterList
	for line, want := range map[string][]string{
		"dlq list": {otherSubscription, subscription},
		"dlq list --subscription " + subscription:            {subscription},
		"dlq list --subscription " + otherSubscription:       {otherSubscription},
		"dlq list --reason too --aggregate " + y.AggregateID: {otherSubscription},
	} {
		b.json(t, 0, line, &list)
		var got []string
		for _, l := range list.Letters {
			got = append(got, l.Subscription)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
	if _, stderr := b.run(t, 2, "dlq list --subscription unknown"); !strings.Contains(stderr, otherSubscription) {
		t.Errorf("an unknown subscription: %s", stderr)
	}
	var r results
	b.run(t, 1, "dlq redrive --yes --why test --subscription "+subscription+" "+y.ID.String())
	b.json(t, 0, "dlq redrive --all --yes --why test", &r)
	if diff := cmp.Diff(map[uuid.UUID]string{x.ID: "applied", y.ID: "applied"}, r.by()); diff != "" || count(t, b.catalog, dead) != 0 {
		t.Errorf("redrive (-want +got):\n%s", diff)
	}
	settled := `SELECT count(*) FROM inbox WHERE status = 'done' AND (consumer, event_id) IN (($1, $2), ($3, $4))`
	if n := count(t, b.catalog, settled, subscription, x.ID, otherSubscription, y.ID); n != 2 {
		t.Errorf("%d rows are done, want both, each of its consumer", n)
	}
	b.json(t, 0, "dlq list", &list)
	if len(list.Letters) != 0 {
		t.Errorf("left: %+v", list)
	}
}

func TestAmbiguousDeadLetter(t *testing.T) {
	t.Parallel()
	s := &invocation{ids: []string{"7"}}
	letters := []deadletter.Letter{{Subscription: "a", MessageID: "7"}, {Subscription: "b", MessageID: "7"}, {Subscription: "b", MessageID: "8"}}
	if chosen, err := s.named(&deadletter.Batch{Letters: letters}); err == nil || !strings.Contains(err.Error(), "add --subscription") {
		t.Errorf("%+v, %v; want to be asked which", chosen, err)
	}
	if chosen, err := s.named(&deadletter.Batch{Letters: letters[1:]}); err != nil || len(chosen) != 1 || chosen[0].Subscription != "b" {
		t.Errorf("%+v, %v; want the one", chosen, err)
	}
}

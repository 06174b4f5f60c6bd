package fresh_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

func of(kind, id string, version int64) consistency.Position {
	return consistency.Position{AggregateType: kind, AggregateID: id, Epoch: 1, Version: version}
}

func isVideo(id string) bool { return strings.HasPrefix(id, "v") }

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	valid := consistency.Token{Positions: []consistency.Position{of("video", "v1", 1)}}
	tenant, invalid := valid, consistency.Token{Positions: []consistency.Position{of("video", "1", 1)}}
	tenant.Tenant = "another"
	for name, tc := range map[string]struct {
		fresh.Request
		field string // empty: it is taken
	}{
		"nothing":                     {},
		"a token":                     {Request: fresh.Request{Token: valid.String()}},
		"a mode that needs a token":   {fresh.Request{Mode: consistency.AtLeastAsFresh}, "mode"},
		"a mode that needs no token":  {Request: fresh.Request{Mode: consistency.MinimizeLatency}},
		"no token":                    {fresh.Request{Token: "no token"}, "token"},
		"another tenant's":            {fresh.Request{Token: tenant.String()}, "token"},
		"an id that there cannot be":  {fresh.Request{Token: invalid.String()}, "token"},
		"fully consistent with token": {Request: fresh.Request{Token: valid.String(), Mode: consistency.FullyConsistent}},
	} {
		tc.TokenField, tc.ModeField = "token", "mode"
		_, err := tc.Demand("video", isVideo)
		field := ""
		if p := problem.From(err); p != nil && len(p.Fields) == 1 {
			field = p.Fields[0].Field
		}
		if field != tc.field || (err != nil) != (tc.field != "") {
			t.Errorf("%s: %v, want an error of %q", name, err, tc.field)
		}
	}
}

// What others than the copy's own aggregates have reached is no matter of the copy's.
func TestADemandIsOfOneType(t *testing.T) {
	t.Parallel()
	all := []consistency.Position{of("song", "s1", 9), of("video", "v1", 1), of("video", "v2", 2), of("video", "v3", 3)}
	d, err := fresh.Request{Token: consistency.Token{Positions: all}.String(), ModeField: "mode"}.Demand("video", isVideo)
	if err != nil {
		t.Fatal(err)
	}
	wants := func(what string, d fresh.Demand, want ...consistency.Position) {
		t.Helper()
		if diff := cmp.Diff(want, d.Wanted()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	wants("all", d, all[1:]...)
	wants("about one", d.About("v2"), all[2])
	wants("about none", d.About("v9"))
	wants("without one", d.Only(func(id string) bool { return id != "v1" }), all[2:]...)
	wants("all, as before", d, all[1:]...)
	lags := d.Lags(of("video", "v1", 1), of("video", "v2", 1))
	if want := []fresh.Lag{{ID: "v2", Version: 1, AtLeast: 2}, {ID: "v3", AtLeast: 3}}; !slices.Equal(lags, want) {
		t.Errorf("lags %v, want %v", lags, want)
	}
	if err := d.OfACopy(); err != nil {
		t.Errorf("a list: %v", err)
	}
	whole, err := fresh.Request{Mode: consistency.FullyConsistent, ModeField: "mode"}.Demand("video", isVideo)
	if err != nil || whole.OfACopy() == nil {
		t.Errorf("a list that is fully consistent: %v, %v", err, whole.OfACopy())
	}
}

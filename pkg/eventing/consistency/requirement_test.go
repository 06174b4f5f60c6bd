package consistency_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/pkg/eventing/consistency"
)

func of(kind, id string, version int64) consistency.Position {
	return consistency.Position{AggregateType: kind, AggregateID: id, Epoch: 1, Version: version}
}

func isVideo(id string) bool { return strings.HasPrefix(id, "v") }

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	valid := consistency.Token{Positions: []consistency.Position{of("video", "v1", 1)}}
	tenant, invalid := valid, consistency.Token{Positions: []consistency.Position{of("video", "1", 1)}}
	tenant.Tenant = "another"
	for name, tc := range map[string]struct {
		consistency.Request
		field string // empty: it is taken
	}{
		"nothing":                     {},
		"a token":                     {Request: consistency.Request{Token: valid.String()}},
		"a mode that needs a token":   {consistency.Request{Mode: consistency.AtLeastAsFresh}, "mode"},
		"a mode that needs no token":  {Request: consistency.Request{Mode: consistency.MinimizeLatency}},
		"a mode that does not exist":  {consistency.Request{Mode: "fresh", Token: valid.String()}, "mode"},
		"no token":                    {consistency.Request{Token: "no token"}, "token"},
		"another tenant's":            {consistency.Request{Token: tenant.String()}, "token"},
		"an id that there cannot be":  {consistency.Request{Token: invalid.String()}, "token"},
		"fully consistent with token": {Request: consistency.Request{Token: valid.String(), Mode: consistency.FullyConsistent}},
	} {
		tc.TokenField, tc.ModeField = "token", "mode"
		_, err := tc.Requirement("video", isVideo)
		field := ""
		if invalid, ok := errors.AsType[*consistency.InvalidRequestError](err); ok {
			field = invalid.Field
		}
		if field != tc.field || (err != nil) != (tc.field != "") {
			t.Errorf("%s: %v, want an error of %q", name, err, tc.field)
		}
	}
}

// A requirement has the positions of one aggregate type only.
func TestARequirementIsOfOneType(t *testing.T) {
	t.Parallel()
	all := []consistency.Position{of("a", "a1", 9), of("video", "v1", 1), of("video", "v2", 2), of("video", "v3", 3)}
	d, err := consistency.Request{Token: consistency.Token{Positions: all}.String(), ModeField: "mode"}.Requirement("video", isVideo)
	if err != nil {
		t.Fatal(err)
	}
	other, err := consistency.Request{Token: consistency.Token{Positions: all}.String()}.Requirement("a", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	wants := func(what string, d consistency.Requirement, want ...consistency.Position) {
		t.Helper()
		if diff := cmp.Diff(want, d.Positions()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	wants("all", d, all[1:]...)
	wants("about one", d.ForAggregate("video", "v2"), all[2])
	wants("about none", d.ForAggregate("video", "v9"))
	wants("about one of another type", d.ForAggregate("a", "v2"))
	wants("without one", d.Filter(func(id string) bool { return id != "v1" }), all[2:]...)
	both, err := d.With("a", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	wants("of two types", both, append(slices.Clone(all[1:]), all[0])...)
	wants("of the first type", both.OfType("video"), all[1:]...)
	wants("of the second type", both.OfType("a"), all[0])
	wants("of two types, as before", both, append(slices.Clone(all[1:]), all[0])...)
	if _, err := d.With("a", isVideo); !errors.As(err, new(*consistency.InvalidRequestError)) {
		t.Errorf("a further type with an invalid id: %v", err)
	}
	wants("with another type", d.ForAggregate("video", "v1").And(other.Positions()...), all[1], all[0])
	wants("all, as before", d, all[1:]...)
	lags := d.Unmet(of("video", "v1", 1), of("video", "v2", 1))
	if want := []consistency.StaleAggregate{{ID: "v2", Version: 1, AtLeast: 2}, {ID: "v3", AtLeast: 3}}; !slices.Equal(lags, want) {
		t.Errorf("lags %v, want %v", lags, want)
	}
	sameID := d.And(of("a", "v1", 7))
	if lags = sameID.ForAggregate("video", "v1").Unmet(of("video", "v1", 1), of("a", "v1", 6)); len(lags) != 0 {
		t.Errorf("lags %v of a video, which another aggregate of the same id has", lags)
	}
	lags = sameID.Unmet(of("a", "v1", 6), of("video", "v1", 9), of("video", "v2", 2), of("video", "v3", 3))
	if want := []consistency.StaleAggregate{{ID: "v1", Version: 6, AtLeast: 7}}; !slices.Equal(lags, want) {
		t.Errorf("lags %v of two types with one id, want %v", lags, want)
	}
	if err := d.RejectFullyConsistent(); err != nil {
		t.Errorf("a list: %v", err)
	}
	whole, err := consistency.Request{Mode: consistency.FullyConsistent, ModeField: "mode"}.Requirement("video", isVideo)
	if err != nil || whole.RejectFullyConsistent() == nil {
		t.Errorf("a list that is fully consistent: %v, %v", err, whole.RejectFullyConsistent())
	}
}

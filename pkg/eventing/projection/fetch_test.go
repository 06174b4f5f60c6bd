package projection_test

import (
	"errors"
	"testing"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/projection"
)

// A reader gets the owner's state of its own tenant, if the state is as fresh as the reader requires. With an
// error it gets no state.
func TestFetchRequired(t *testing.T) {
	t.Parallel()
	theirs := newNote("a/1", 2, 3, "theirs")
	for name, tc := range map[string]struct {
		wanted []consistency.Position
		owner  []note
		epoch  int64
		tenant string
		away   error
		want   error
	}{
		"known":                         {owner: []note{theirs}},
		"as fresh as required":          {wanted: []consistency.Position{at("a/1", 2, 3)}, owner: []note{theirs}},
		"of a later epoch":              {wanted: []consistency.Position{at("a/1", 1, 9)}, owner: []note{theirs}},
		"ahead":                         {wanted: []consistency.Position{at("a/1", 2, 4)}, owner: []note{theirs}, want: consistency.ErrAhead},
		"of another tenant":             {owner: []note{theirs}, epoch: 2, tenant: "another", want: projection.ErrUnknown},
		"of another tenant, with token": {wanted: []consistency.Position{at("a/1", 2, 3)}, owner: []note{theirs}, epoch: 2, tenant: "another", want: consistency.ErrAhead},
		"unknown":                       {epoch: 2, want: projection.ErrUnknown},
		"unknown, in the same epoch":    {wanted: []consistency.Position{at("a/1", 2, 1)}, epoch: 2, want: consistency.ErrAhead},
		"lost in an epoch before":       {wanted: []consistency.Position{at("a/1", 1, 1)}, epoch: 2, want: projection.ErrUnknown},
		"the owner is away":             {away: consistency.ErrOwnerUnavailable, want: consistency.ErrOwnerUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t)
			s.has(tc.owner...)
			s.epoch, s.away = tc.epoch, tc.away
			if tc.tenant == "" {
				tc.tenant = eventing.DefaultTenant
			}
			var required consistency.Requirement
			if len(tc.wanted) > 0 {
				required = require(t, consistency.Request{}, tc.wanted...)
			}
			row, err := s.FetchRequired(t.Context(), tc.tenant, "a/1", required)
			if !errors.Is(err, tc.want) || (tc.want == nil) != (err == nil) {
				t.Errorf("%v, want %v", err, tc.want)
			}
			if want := map[bool]note{true: theirs}[err == nil]; row != want {
				t.Errorf("%+v, want %+v", row, want)
			}
		})
	}
}

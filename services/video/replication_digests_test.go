package video

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/reconcile"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
)

// The owner says which fields it cannot compare, and takes no other text into its SQL.
func TestDigests(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	owner := newReplication(newServices(a.db, nil))
	d := func(kind string, encoding int32, fields ...string) *replicationv1.Definition {
		return &replicationv1.Definition{AggregateType: kind, Encoding: encoding, Fields: fields}
	}
	nothing := uuid.Nil.String()
	part, err := owner.DigestRows(t.Context(), &replicationv1.DigestRowsRequest{Definition: d("video", 1, creation...), From: nothing})
	if err != nil || len(part.GetRanges()) != 1 || part.GetRanges()[0].GetRows() != 1 || part.GetEpoch() != 1 || part.GetAsOf() == nil {
		t.Fatalf("%v, %v", part, err)
	}
	page, err := owner.ListRowDigests(t.Context(), &replicationv1.ListRowDigestsRequest{Definition: d("video", 1, creation...), From: nothing, Until: part.GetUntil()})
	if err != nil || len(page.GetRows()) != 1 || page.GetRows()[0].GetId() != v.ID.String() || page.GetRows()[0].GetLastEventId() == "" {
		t.Fatalf("%v, %v", page, err)
	}
	backwards := slices.Sorted(slices.Values(creation))
	slices.Reverse(backwards)
	again, err := owner.DigestRows(t.Context(), &replicationv1.DigestRowsRequest{Definition: d("video", 1, backwards...), From: nothing})
	if err != nil || again.GetRanges()[0].GetDigest() != part.GetRanges()[0].GetDigest() {
		t.Errorf("fields in another order: %v, %v", again, err)
	}
	for name, tc := range map[string]struct {
		definition *replicationv1.Definition
		from       string
		reason     string
		names      string
	}{
		"no definition":      {nil, nothing, reconcile.ReasonIncomparable, "no aggregate type"},
		"another type":       {d("channel", 1), nothing, reconcile.ReasonIncomparable, `"channel"`},
		"another encoding":   {d("video", 2), nothing, reconcile.ReasonIncomparable, "not 2"},
		"an unknown field":   {d("video", 1, "title", "hue"), nothing, reconcile.ReasonIncomparable, `"hue"`},
		"a field twice":      {d("video", 1, "title", "description", "title"), nothing, reconcile.ReasonIncomparable, `"title"`},
		"a field 100 times":  {d("video", 1, slices.Repeat([]string{"description"}, 100)...), nothing, reconcile.ReasonIncomparable, `"description"`},
		"SQL as a field":     {d("video", 1, "now()"), nothing, reconcile.ReasonIncomparable, `"now()"`},
		"no id":              {d("video", 1), "", "INVALID_ARGUMENT", "from"},
		"the id of a like":   {d("video", 1), nothing + ":" + nothing, "INVALID_ARGUMENT", "from"},
		"the id of no like":  {d("engagement", 1), nothing, "INVALID_ARGUMENT", "from"},
		"an id in uppercase": {d("video", 1), strings.ToUpper(v.ID.String()), "INVALID_ARGUMENT", "from"},
	} {
		_, first := owner.DigestRows(t.Context(), &replicationv1.DigestRowsRequest{Definition: tc.definition, From: tc.from})
		_, second := owner.ListRowDigests(t.Context(), &replicationv1.ListRowDigestsRequest{Definition: tc.definition, From: tc.from, Until: part.GetUntil()})
		for _, err := range []error{first, second} {
			err := problem.From(err).GRPCStatus().Err()
			if status.Code(err) != codes.InvalidArgument || problem.ReasonOf(err) != tc.reason || !strings.Contains(err.Error(), tc.names) {
				t.Errorf("%s: %s, %v", name, problem.ReasonOf(err), err)
			}
		}
	}
	if !slices.Equal(newTable(a.db).Definition().Fields, slices.Sorted(slices.Values(append([]string{"tenant_id"}, creation...)))) {
		t.Errorf("the fields are %v", newTable(a.db).Definition().Fields)
	}
}

// A caller that cannot have its turn soon is told so, and does not hold the line up.
func TestATurnThatDoesNotCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		owner := newReplication(services{comparable: map[string]*reconcile.Table{"video": nil}})
		owner.turn <- struct{}{}
		_, err := owner.DigestRows(t.Context(), &replicationv1.DigestRowsRequest{Definition: &replicationv1.Definition{AggregateType: "video"}})
		if p := problem.From(err); p == nil || p.Code != problem.CodeTooMany || p.RetryAfter == 0 || status.Code(p.GRPCStatus().Err()) != codes.ResourceExhausted {
			t.Errorf("a busy owner: %v", err)
		}
	})
}

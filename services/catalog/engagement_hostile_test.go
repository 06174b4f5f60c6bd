package catalog

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

// A list of engagements names every fault of its demand for freshness, as a list of videos does.
func TestEveryFaultOfADemandForEngagementsIsNamed(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	line := "GET /v1/users/" + newVideoID().String() + "/engagements?page_size=0"
	got := blamedAll(call(t, f.listen(t), line, "Prefer: wait=-1", "Consistency: fully-consistent"))
	if diff := cmp.Diff([]string{"Prefer", "page_size", "Consistency"}, got); diff != "" {
		t.Errorf("over REST (-want +got):\n%s", diff)
	}
	_, err := catalogv1.NewCatalogServiceClient(f.dial(t)).ListUserEngagements(t.Context(), &catalogv1.ListUserEngagementsRequest{
		PageSize: -1, Wait: durationpb.New(-time.Second), Consistency: catalogv1.Consistency_CONSISTENCY_FULLY_CONSISTENT,
	})
	if got, want := violations(err), []string{"wait", "consistency", "user_id", "page_size"}; !slices.Equal(got, want) {
		t.Errorf("over gRPC: %v, want %v", got, want)
	}
}

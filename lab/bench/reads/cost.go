package reads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/services/catalog"
)

func costs() measure.Series {
	var cost measure.Measurement
	for _, k := range readKinds {
		cost.Figures = append(cost.Figures, measure.Figure{Name: "read." + k.name + "_ms", Unit: "ms", Note: k.note})
	}
	cost.Run = withHarness(readsInTurns)
	return measure.Series{
		Title:        "fresh reads: the cost of a token where the projection is fresh",
		Measurements: []measure.Measurement{cost},
		Derived: []measure.Derived{
			measure.Ratio("read.token_cost", "read.token_ms", "read.plain_ms", "1.1 or less wanted"),
			measure.Ratio("read.session_cost", "read.session_ms", "read.plain_ms", ""),
			measure.Ratio("read.list_token_cost", "read.list_token_ms", "read.list_plain_ms", "one snapshot has the page and the check"),
		},
	}
}

// readKinds are the kinds of REST reads that take turns. All of them read existing videos.
var readKinds = []struct {
	name, note string
	list       bool
	named      int // videos that its token names; 0: no token
}{
	{"plain", "GET of a video over REST, median", false, 0},
	{"token", "the same with its token, which is reached", false, 1},
	{"session", "the same with a token of 32 videos", false, consistency.MaxPositions},
	{"list_plain", "a page of 50", true, 0},
	{"list_token", "the same with a token of one video", true, 1},
}

// readsInTurns makes one read of each kind after the other, on one connection, in a new random
// order in each turn. The order matters, because a read is faster after a read of the same row, and
// slower after a read of a page.
func readsInTurns(ctx context.Context, h *readHarness, v volume) (measure.Reading, error) {
	took := make([][]time.Duration, len(readKinds))
	for n := range v.reads {
		for _, i := range rand.Perm(len(readKinds)) {
			k := readKinds[i]
			v, path := h.videos[n%len(h.videos)], "/v1/videos"
			if !k.list {
				path += "/" + v.id.String()
			}
			header := http.Header{}
			if k.named > 0 {
				token, err := h.token(n, k.named)
				if err != nil {
					return measure.Reading{}, err
				}
				header.Set("Consistency-Token", token)
			}
			began := time.Now()
			a, err := h.get(ctx, path, header)
			took[i] = append(took[i], time.Since(began))
			if err != nil {
				return measure.Reading{}, err
			}
			if a.Source != catalog.SourceProjection {
				return measure.Reading{}, fmt.Errorf("%s is answered by the %s", k.name, a.Source)
			}
		}
	}
	var values []float64
	for _, t := range took {
		values = append(values, measure.Percentiles(t, 50)...)
	}
	return measure.Reading{Values: values, Note: fmt.Sprintf("%d reads a run", len(took[0]))}, nil
}

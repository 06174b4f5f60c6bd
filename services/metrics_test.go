package services_test

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"example.com/lockstep/internal/local/broker"
)

var (
	bucketMetric = regexp.MustCompile(`(?m)^(\w+)_bucket\{.*le="([0-9.e+-]+)".*\} \d+$`)
	countMetric  = regexp.MustCompile(`(?m)^(\w+)_count\{.*\} ([1-9]\d*)$`)
)

// histograms returns an instance's histograms so far, each with the bounds of its
// buckets.
func histograms(t *testing.T, addr string) map[string][]float64 {
	t.Helper()
	said := metrics(t, addr)
	bounds := map[string][]float64{}
	for _, m := range bucketMetric.FindAllStringSubmatch(said, -1) {
		bound, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		bounds[m[1]] = append(bounds[m[1]], bound)
	}
	measured := map[string][]float64{}
	for _, m := range countMetric.FindAllStringSubmatch(said, -1) {
		measured[m[1]] = slices.Compact(slices.Sorted(slices.Values(bounds[m[1]])))
	}
	return measured
}

// TestHistogramsFitWhatTheyMeasure lets both services, run as they are deployed,
// measure something. OpenTelemetry's own buckets are made for milliseconds: in them all
// fractions of a second, or all batches of up to five events, would fall into one
// bucket.
func TestHistogramsFitWhatTheyMeasure(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startBroker(t, broker.Local))
	w.spawnVideo(t, w.videoAddr).ready(t)
	w.spawnCatalog(t, w.catalogAddr).ready(t)
	v := w.create(t, "First cut")
	w.read(t, v.ID, v.Token, 10).is(t, http.StatusOK, 1)
	w.read(t, v.ID, tokenFor(v.ID, 2), 1).is(t, http.StatusConflict, 0) // after a wait
	for addr, names := range map[string][]string{
		w.videoAddr:   {"outbox_publish_duration_seconds", "outbox_event_age_at_publish_seconds", "outbox_batch_size"},
		w.catalogAddr: {"inbox_batch_duration_seconds", "inbox_event_age_at_apply_seconds", "inbox_batch_size", "consistency_wait_seconds"},
	} {
		var measured map[string][]float64
		eventually(t, "all histograms have measured something", func() bool {
			measured = histograms(t, addr)
			return !slices.ContainsFunc(names, func(name string) bool { return measured[name] == nil })
		})
		for name, bounds := range measured {
			t.Logf("%s %v", name, bounds)
			if complaint := unfit(name, bounds); complaint != "" {
				t.Errorf("%s: %s; its buckets end at %v", name, complaint, bounds)
			}
		}
	}
}

// unfit describes the fault of buckets that end at bounds.
func unfit(name string, bounds []float64) string {
	between := func(low, high float64) (n int) {
		for _, b := range bounds {
			if low <= b && b <= high {
				n++
			}
		}
		return n
	}
	ours := strings.HasPrefix(name, "outbox_") || strings.HasPrefix(name, "inbox_") || strings.HasPrefix(name, "consistency_")
	switch {
	case strings.HasSuffix(name, "_seconds") && between(0.001, 0.1) < 5:
		return "it hardly separates the parts of a tenth of a second"
	case strings.HasSuffix(name, "_seconds") && ours && (between(0, 0.001) == 0 || between(60, 3600) == 0):
		return "it shows neither a millisecond nor an outage"
	case strings.HasSuffix(name, "_size") && ours && (between(1, 1) == 0 || between(2, 100) < 4 || between(1000, 1000) == 0):
		return "it shows neither a single event nor the largest batch"
	}
	return ""
}

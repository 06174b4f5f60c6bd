package live

import (
	"math"
	"strings"
	"testing"
	"time"
)

const scraped = `# TYPE inbox_events_total counter
inbox_events_total{outcome="applied",subscription="video.events.catalog"} 7
inbox_events_total{outcome="applied",subscription="engagement.events.catalog"} 3
inbox_events_total{outcome="duplicate",subscription="video.events.catalog"} 2
inbox_dead_letters_total{subscription="video.events.catalog"} 1
inbox_in_flight_messages{subscription="video.events.catalog"} 4
inbox_event_age_at_apply_seconds_bucket{subscription="video.events.catalog",le="0.01"} 5
inbox_event_age_at_apply_seconds_bucket{subscription="video.events.catalog",le="0.1"} 9
inbox_event_age_at_apply_seconds_bucket{subscription="video.events.catalog",le="+Inf"} 10
consistency_reads_total{outcome="authority"} 6
`

func TestConsumer(t *testing.T) {
	t.Parallel()
	m, err := ParseSamples(strings.NewReader(scraped))
	if err != nil {
		t.Fatal(err)
	}
	var c Consumer
	now := time.Now()
	c.See(now, m)
	c.See(now.Add(time.Second), m) // nothing came
	c.Away(now.Add(2 * time.Second))
	stages := map[string]Stage{}
	for _, s := range c.Stages() {
		stages[s.Name] = s
	}
	notes := map[string]Note{}
	for _, n := range append(stages["Inbox"].Notes, stages["Fresh reads"].Notes...) {
		notes[n.Name] = n
	}
	if stages["Broker"].Total != 12 || stages["Inbox"].Total != 10 || stages["Fresh reads"].Total != 6 || notes["duplicates"].Value != 2 ||
		notes["in hand"].Value != 4 || notes["from the owner"].Value != 6 || notes["dead letters"] != (Note{"dead letters", 1, true}) {
		t.Errorf("stages %+v", c.Stages())
	}
	lag := c.Lag()
	if len(lag) != 3 || lag[0].Median != 10 || lag[0].High != 100 || lag[1].Median >= 0 || lag[2].Median >= 0 {
		t.Errorf("lag %v", lag)
	}
	for range MaxPoints {
		c.Away(now)
	}
	if n := len(c.Lag()); n != MaxPoints {
		t.Errorf("%d points", n)
	}
}

func TestCounterOverARestart(t *testing.T) {
	t.Parallel()
	var c Counter
	at := time.Now()
	for i, value := range []float64{100, 150, 10, 30} { // the second process has counted 30
		c.See(at.Add(time.Duration(i)*time.Second), value)
	}
	if c.Total() != 180 || c.Rate() != 80.0/3 {
		t.Errorf("total %d, rate %f", c.Total(), c.Rate())
	}
	for i := range 2 * window {
		c.Hold(at.Add(time.Duration(4+i) * time.Second))
	}
	if c.Rate() != 0 || len(c.past) > window+1 {
		t.Errorf("rate %f without events, %d observations", c.Rate(), len(c.past))
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		q           float64
		before, now map[float64]float64
		want        float64
	}{
		"nothing":             {0.5, nil, nil, -1},
		"nothing new":         {0.5, map[float64]float64{1: 3, inf: 3}, map[float64]float64{1: 3, inf: 3}, -1},
		"within a bucket":     {0.5, map[float64]float64{1: 1, 2: 1, inf: 1}, map[float64]float64{1: 1, 2: 5, inf: 5}, 1.5},
		"above all bounds":    {0.5, nil, map[float64]float64{1: 0, inf: 4}, 1},
		"of another process":  {0.5, map[float64]float64{1: 9, inf: 9}, map[float64]float64{1: 2, inf: 2}, 0.5},
		"the first of a pair": {0.25, nil, map[float64]float64{1: 1, 2: 2, inf: 2}, 0.5},
	} {
		if got := quantile(c.q, c.before, c.now); got != c.want {
			t.Errorf("%s: %f, want %f", name, got, c.want)
		}
	}
}

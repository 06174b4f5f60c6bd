package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"example.com/lockstep/internal/live"
	"example.com/lockstep/internal/local/instance"
	"example.com/lockstep/pkg/eventing/backoff"
)

// frameTime is the time from one frame to the next.
const frameTime = 250 * time.Millisecond

// observer looks at the pair from outside: at the metrics of both services, and at the
// tables of both databases. Each look has a pace of its own, so that a part that is away
// holds up only its own numbers.
type observer struct {
	pair *Pair

	mu                         sync.Mutex
	writes, published, arrived counter
	applied, redelivered       counter
	duplicates, dead           counter
	reads, waited, fromOwner   counter
	lag                        []live.Point
	ages                       map[float64]float64
	video, catalog, broker     bool // it answered the last look
	videoMemory, catalogMemory float64
	inFlight, blocked          float64
	tables                     tables
	databaseUp                 bool
	brokerFaults               string
}

func newObserver(p *Pair) *observer {
	return &observer{pair: p, ages: map[float64]float64{}}
}

// run looks until ctx ends.
func (o *observer) run(ctx context.Context) {
	var looks errgroup.Group
	for _, look := range []func(context.Context){o.seeVideo, o.seeCatalog, o.seeTables, o.seeBroker} {
		looks.Go(func() error {
			for backoff.Sleep(ctx, frameTime, nil) {
				look(ctx)
			}
			return nil
		})
	}
	_ = looks.Wait() // no look fails: a part that is away is a state
}

func (o *observer) seeVideo(ctx context.Context) {
	var m metrics
	var err error
	if running := o.pair.Video.State().PID != 0; running {
		m, err = o.pair.scrape(ctx, o.pair.VideoURL)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.video = m != nil && err == nil; !o.video {
		o.writes.hold(now)
		o.published.hold(now)
		return
	}
	const requests, ok = "http_server_request_duration_seconds_count", `http_response_status_code="20`
	o.writes.see(now, m.sum(requests, ok)-m.sum(requests, ok, `method="GET"`))
	o.published.see(now, m.sum("outbox_published_total"))
	o.videoMemory = m.sum("process_resident_memory_bytes")
}

func (o *observer) seeCatalog(ctx context.Context) {
	var m metrics
	var err error
	if running := o.pair.Catalog.State().PID != 0; running {
		m, err = o.pair.scrape(ctx, o.pair.CatalogURL)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	all := []*counter{&o.arrived, &o.redelivered, &o.applied, &o.duplicates, &o.dead, &o.reads, &o.waited, &o.fromOwner}
	if o.catalog = m != nil && err == nil; !o.catalog {
		for _, c := range all {
			c.hold(now)
		}
		o.lag = recent(o.lag, live.Point{Median: -1, High: -1})
		return
	}
	const events, reads = "inbox_events_total", "consistency_reads_total"
	for i, value := range []float64{
		m.sum(events), m.sum("inbox_redeliveries_total"), m.sum(events, `outcome="applied"`), m.sum(events, `outcome="duplicate"`) + m.sum(events, `outcome="stale"`),
		m.sum("inbox_dead_letters_total"), m.sum(reads), m.sum(reads, `outcome="waited"`), m.sum(reads, `outcome="authority"`),
	} {
		all[i].see(now, value)
	}
	o.inFlight, o.blocked = m.sum("inbox_in_flight_messages"), m.sum("inbox_blocked_aggregates")
	o.catalogMemory = m.sum("process_resident_memory_bytes")
	ages := m.buckets("inbox_event_age_at_apply_seconds")
	const milliseconds = 1000
	o.lag = recent(o.lag, live.Point{
		Median: quantile(0.5, o.ages, ages) * milliseconds, High: quantile(0.99, o.ages, ages) * milliseconds,
	})
	o.ages = ages
}

func recent(points []live.Point, p live.Point) []live.Point {
	points = append(points, p)
	if over := len(points) - live.MaxPoints; over > 0 {
		points = points[over:]
	}
	return points
}

func (o *observer) seeTables(ctx context.Context) {
	t, err := o.pair.look(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.databaseUp = err == nil; o.databaseUp {
		o.tables = t
	}
}

func (o *observer) seeBroker(ctx context.Context) {
	faults, up := o.pair.brokerState(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broker, o.brokerFaults = up, faults
}

// frame is the present state.
func (o *observer) frame() live.Frame {
	o.mu.Lock()
	defer o.mu.Unlock()
	return live.Frame{
		Stages: o.stages(), Lag: append([]live.Point(nil), o.lag...), Events: o.tables.newest,
		Parts: []live.Part{
			process("video", o.pair.Video.State(), o.video, o.videoMemory),
			process("catalog", o.pair.Catalog.State(), o.catalog, o.catalogMemory),
			server("Postgres", o.databaseUp, "both services' databases"),
			server("Pub/Sub", o.broker, o.brokerFaults),
		},
	}
}

func (o *observer) stages() []live.Stage {
	stage := func(name string, c *counter, notes ...live.Note) live.Stage {
		return live.Stage{Name: name, Rate: c.rate(), Total: int64(c.total), Notes: notes}
	}
	return []live.Stage{
		stage("Writes", &o.writes),
		stage("Outbox", &o.published, live.Note{Name: "waiting", Value: o.tables.pending},
			live.Note{Name: "parked", Value: o.tables.parked, Alert: o.tables.parked > 0}),
		stage("Broker", &o.arrived, live.Note{Name: "redelivered", Value: int64(o.redelivered.total)}),
		stage("Inbox", &o.applied, live.Note{Name: "in hand", Value: int64(o.inFlight)},
			live.Note{Name: "duplicates", Value: int64(o.duplicates.total)},
			live.Note{Name: "dead letters", Value: o.tables.dead, Alert: o.tables.dead > 0}),
		{Name: "Projection", Rate: o.applied.rate(), Total: int64(o.applied.total),
			Notes: []live.Note{{Name: "videos", Value: o.tables.rows}, {Name: "held", Value: o.tables.held, Alert: o.tables.held > 0}, {Name: "blocked", Value: int64(o.blocked), Alert: o.blocked > 0}}},
		stage("Fresh reads", &o.reads, live.Note{Name: "waited", Value: int64(o.waited.total)},
			live.Note{Name: "from the owner", Value: int64(o.fromOwner.total)}),
	}
}

func process(name string, s instance.State, answers bool, memory float64) live.Part {
	part := live.Part{Name: name, State: "up", Detail: fmt.Sprintf("process %d, start %d, %.0f MB", s.PID, s.Starts, memory/1e6)}
	switch {
	case s.PID == 0:
		part.State, part.Detail = "away", "no process"
	case !answers:
		part.State = "starting"
	}
	return part
}

func server(name string, up bool, detail string) live.Part {
	if !up {
		return live.Part{Name: name, State: "away", Detail: "no answer"}
	}
	return live.Part{Name: name, State: "up", Detail: detail}
}

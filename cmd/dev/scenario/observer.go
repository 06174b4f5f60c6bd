package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"example.com/lockstep/internal/live"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/pkg/eventing/backoff"
)

// observer watches the pair from outside. It reads the metrics of both services, the tables of both
// databases, and the state of the broker. A loop of its own reads each of these. So if a part does
// not answer, only the numbers of that part are late.
type observer struct {
	pair *Pair

	mu                     sync.Mutex
	writes, published      live.Counter
	consumer               live.Consumer
	video, catalog, broker bool // whether the part answered the last time
	videoMemory            float64
	tables                 tables
	databaseUp             bool
	brokerFaults           string
}

// run reads all parts repeatedly until ctx ends. It reads only while a browser shows the page.
func (o *observer) run(ctx context.Context, page *live.Page) {
	var looks sync.WaitGroup
	for _, look := range []func(context.Context){o.seeVideo, o.seeCatalog, o.seeTables, o.seeBroker} {
		looks.Go(func() {
			for backoff.Sleep(ctx, live.FrameTime, nil) {
				if page.Viewers() > 0 {
					look(ctx)
				}
			}
		})
	}
	looks.Wait()
}

func (o *observer) seeVideo(ctx context.Context) {
	m := o.samples(ctx, o.pair.Video, o.pair.VideoURL)
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.video = m != nil; !o.video {
		o.writes.Hold(now)
		o.published.Hold(now)
		return
	}
	const requests, ok = "http_server_request_duration_seconds_count", `http_response_status_code="20`
	o.writes.See(now, m.Sum(requests, ok)-m.Sum(requests, ok, `method="GET"`))
	o.published.See(now, m.Sum("outbox_published_total"))
	o.videoMemory = m.Sum("process_resident_memory_bytes")
}

func (o *observer) seeCatalog(ctx context.Context) {
	m := o.samples(ctx, o.pair.Catalog, o.pair.CatalogURL)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.catalog = m != nil; o.catalog {
		o.consumer.See(time.Now(), m)
	} else {
		o.consumer.Away(time.Now())
	}
}

// samples returns the metrics of a service, or nil if no process answers.
func (o *observer) samples(ctx context.Context, i *process.Instance, url string) live.Samples {
	if i.State().PID == 0 {
		return nil
	}
	m, err := o.pair.scrape(ctx, url)
	if err != nil {
		return nil
	}
	return m
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

func (o *observer) frame() live.Frame {
	o.mu.Lock()
	defer o.mu.Unlock()
	return live.Frame{
		Stages: o.stages(), Lag: o.consumer.Lag(), Events: o.tables.newest,
		Parts: []live.Part{
			service("video", o.pair.Video.State(), o.video, o.videoMemory),
			service("catalog", o.pair.Catalog.State(), o.catalog, o.consumer.Memory()),
			server("Postgres", o.databaseUp, "both services' databases"),
			server("Pub/Sub", o.broker, o.brokerFaults),
		},
	}
}

func (o *observer) stages() []live.Stage {
	note := func(name string, value int64, alert bool) live.Note {
		return live.Note{Name: name, Value: value, Alert: alert && value > 0}
	}
	stages := append([]live.Stage{
		live.NewStage("Writes", &o.writes),
		live.NewStage("Outbox", &o.published, note("waiting", o.tables.pending, false), note("parked", o.tables.parked, true)),
	}, o.consumer.Stages()...)
	for i := range stages {
		switch stages[i].Name {
		case "Inbox":
			stages[i].Notes = append(stages[i].Notes[:2], note("dead letters", o.tables.dead, true)) // also those of earlier processes
		case "Projection":
			stages[i].Notes = append(stages[i].Notes, note("held", o.tables.held, true), note("videos", o.tables.rows, false))
		}
	}
	return stages
}

func service(name string, s process.State, answers bool, memory float64) live.Part {
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

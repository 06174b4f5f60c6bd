// Package localpubsub measures the local Pub/Sub, the official emulator and pstest. It measures the
// rates of publishing and receiving, with no key and with up to 10,000 keys, the delay until a
// message arrives, and the server's memory. Each run has a new server in its own process on
// loopback, and one client in this process. The server and the client share only the machine.
package localpubsub

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// A side is one of the compared servers. The suffix is the end of the names of its figures.
type side struct{ kind, suffix string }

var allSides = []side{
	{rig.Ours, ""},
	{rig.Emulator, "_emulator"},
	{rig.Pstest, "_pstest"},
}

// volume is the amount of work of a size. Most loads are bounded in time, because the slowest
// server takes minutes for the work that the fastest server does in a second.
type volume struct {
	publish   time.Duration // a run takes this long; the warm-up half of it
	receive   time.Duration // a run takes this long at most
	stored    int           // messages that wait for a receiving run
	fill      time.Duration // bound on the time to store a million messages
	sustained int           // messages of the long run
	samples   int           // of a latency
}

var volumes = [...]volume{
	measure.Quick: {publish: 200 * time.Millisecond, receive: time.Second, stored: 10_000, sustained: 20_000, samples: 40},
	measure.Normal: {
		publish: time.Second, receive: time.Second, stored: 50_000, fill: 20 * time.Second, sustained: 200_000, samples: 100,
	},
	measure.Full: {
		publish: 3 * time.Second, receive: 5 * time.Second, stored: 100_000, fill: time.Minute, sustained: 400_000, samples: 1000,
	},
}

var keyCounts = []struct {
	keys  int
	name  string
	title string
	long  bool // left out of the default size
}{
	{0, "nokey", "no key", false},
	{1, "1key", "1 key", true},
	{100, "100keys", "100 keys", false},
	{10_000, "10000keys", "10,000 keys", true},
}

// Series returns the series.
func Series() (all []measure.Series) {
	for _, c := range keyCounts {
		s := publishing(c.keys, c.name, c.title)
		s.Long = c.long
		all = append(all, s)
	}
	for _, c := range keyCounts[:3] {
		s := receiving(c.keys, c.name, c.title)
		s.Long = c.long
		all = append(all, s)
	}
	return append(all, manyKeys(), orderedStream(), latency(), manyMessages())
}

// A setup is a new broker of one of the compared kinds, with a client.
type setup struct{ *rig.BrokerClient }

// A trial is a function that makes one run against one of the servers. If there are keys, the
// subscription is ordered.
type trial func(ctx context.Context, s *setup, v volume) (measure.Reading, error)

// warmed returns a trial that warms up the server and the client before once. Trials that measure
// memory have no warm-up. In a warm-up, the fastest server would handle the most messages and so
// keep the most memory.
func warmed(once trial) trial {
	return func(ctx context.Context, s *setup, v volume) (measure.Reading, error) {
		if err := s.warm(ctx, v.publish/2); err != nil {
			return measure.Reading{}, fmt.Errorf("warm up: %w", err)
		}
		return once(ctx, s, v)
	}
}

// compared returns a series with one measurement for each side, taken once. The sides differ by
// factors, so one run is enough. More runs would take a third of the whole benchmark's time.
func compared(title string, keys int, figures []measure.Figure, once trial) measure.Series {
	s := measure.Series{Title: "Pub/Sub, " + title, Runs: 1}
	for _, c := range allSides {
		s.Measurements = append(s.Measurements, c.measurement(keys, figures, once))
	}
	return s
}

// measurement returns the measurement of one side. args are arguments for its server.
func (c side) measurement(keys int, figures []measure.Figure, once trial, args ...string) measure.Measurement {
	var m measure.Measurement
	for _, f := range figures {
		f.Name = "localpubsub." + f.Name + c.suffix
		m.Figures = append(m.Figures, f)
	}
	m.Run = func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		fresh, err := rig.StartBrokerClient(ctx, keys > 0, append(args, "--kind", c.kind)...)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, fresh.Close()) }()
		return once(ctx, &setup{fresh}, volumes[size])
	}
	return m
}

func publishing(keys int, name, title string) measure.Series {
	rate := measure.Figure{Name: "publish_" + name, Unit: "msg/s"}
	once := func(ctx context.Context, s *setup, v volume) (measure.Reading, error) {
		before := s.used()
		rate, err := s.publish(ctx, rig.Topic, keys, v.publish)
		return s.perMessage(rate, before), err
	}
	return compared("publish: "+title+", 1 KB", keys, []measure.Figure{rate}, warmed(once))
}

func receiving(keys int, name, title string) measure.Series {
	rate := measure.Figure{Name: "receive_" + name, Unit: "msg/s"}
	once := func(ctx context.Context, s *setup, v volume) (measure.Reading, error) {
		if _, err := s.store(ctx, v.stored, keys, 100, body); err != nil {
			return measure.Reading{}, err
		}
		before := s.used()
		rate, err := s.receive(ctx, rig.Topic, v.stored, v.receive)
		return s.perMessage(rate, before), err
	}
	s := compared("receive: "+title+", 1 KB, one stream", keys, []measure.Figure{rate}, warmed(once))
	if keys == 0 {
		s.Derived = append(s.Derived, measure.Ratio("localpubsub.receive_vs_emulator",
			"localpubsub.receive_nokey", "localpubsub.receive_nokey_emulator", "10 or more wanted"))
	}
	return s
}

// These are the files with the CPU profiles of [orderedStream], for `go tool pprof`.
const (
	serverProfile = "build/bench-receive-server.pprof"
	clientProfile = "build/bench-receive-client.pprof"
)

// orderedStream measures a long run of our server alone, under the profiler.
func orderedStream() measure.Series {
	const keys = 100
	rate := measure.Figure{
		Name: "receive_ordered_100", Unit: "msg/s", Note: "30,000 or more wanted; profiles in " + filepath.Dir(serverProfile),
	}
	once := func(ctx context.Context, s *setup, v volume) (_ measure.Reading, err error) {
		if _, err := s.store(ctx, v.sustained, keys, 100, body); err != nil {
			return measure.Reading{}, err
		}
		stop, err := rig.Profile(clientProfile)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err := s.Broker.Profile(); err != nil {
			return measure.Reading{}, err
		}
		before := s.used()
		rate, err := s.receive(ctx, rig.Topic, v.sustained, patience)
		return s.perMessage(rate, before), err
	}
	return measure.Series{
		Title:        "Pub/Sub, receive: 100 ordered keys, 1 KB, one long stream",
		Measurements: []measure.Measurement{allSides[0].measurement(keys, []measure.Figure{rate}, warmed(once), "--profile", serverProfile)},
	}
}

func latency() measure.Series {
	figures := []measure.Figure{{Name: "latency_p50_ms", Unit: "ms"}, {Name: "latency_p99_ms", Unit: "ms"}}
	once := func(ctx context.Context, s *setup, v volume) (measure.Reading, error) {
		took, err := s.latencies(ctx, v.samples)
		if err != nil {
			return measure.Reading{}, err
		}
		return measure.Sampled(len(took), measure.Percentiles(took, 50, 99)...), nil
	}
	return compared(fmt.Sprintf("publish to callback: %d messages/s", lightLoad), 0, figures, warmed(once))
}

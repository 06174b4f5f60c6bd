package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/internal/localbroker"
)

// The local Pub/Sub beside the official emulator and pstest. Each run has a fresh
// server in a process of its own on loopback and one client in this one; what they
// share is the machine.

// brokers are the sides of each series; the suffix goes to the names of figures.
var brokers = []struct{ kind, suffix string }{
	{string(localbroker.Official), "_emulator"},
	{string(localbroker.Fake), "_pstest"},
}

// volume is how much of it is done. Loads are bounded in time, since the slowest
// server takes minutes for what the fastest does in a second.
type volume struct {
	load      time.Duration // of one run, and the warm-up takes a quarter
	stored    int           // messages that wait for a receiving run
	sustained int           // those of the long one
	samples   int           // of a latency
}

var volumes = [...]volume{
	quick:  {load: 200 * time.Millisecond, stored: 10_000, sustained: 20_000, samples: 40},
	normal: {load: time.Second, stored: 50_000, sustained: 200_000, samples: 200},
	full:   {load: 3 * time.Second, stored: 100_000, sustained: 400_000, samples: 1000},
}

var keyCounts = []struct {
	keys  int
	name  string
	title string
}{
	{0, "nokey", "no key"},
	{1, "1key", "1 key"},
	{100, "100keys", "100 keys"},
	{10_000, "10000keys", "10,000 keys"},
}

func localpubsubSeries() (all []series) {
	for _, c := range keyCounts {
		all = append(all, publishing(c.keys, c.name, c.title))
	}
	for _, c := range keyCounts {
		all = append(all, receiving(c.keys, c.name, c.title))
	}
	return append(all, latency(), memoryOfMany(), memoryOfKeys())
}

// sides makes a series of one measurement per broker. measure gets a rig that is
// warm, and whose subscription is ordered if keys says that there are any.
func sides(title, unit string, keys int, names []string, measure func(context.Context, *rig, volume) (reading, error)) series {
	s := series{title: title}
	for _, b := range brokers {
		var m measurement
		for _, name := range names {
			m.figures = append(m.figures, figure{name: "localpubsub." + name + b.suffix, unit: unit})
		}
		m.run = func(ctx context.Context, size size) (_ reading, err error) {
			r, err := newRig(ctx, keys > 0, "--kind", b.kind)
			if err != nil {
				return reading{}, err
			}
			defer func() { err = errors.Join(err, r.close()) }()
			if err := r.warm(ctx, volumes[size].load/4); err != nil {
				return reading{}, fmt.Errorf("warm up: %w", err)
			}
			return measure(ctx, r, volumes[size])
		}
		s.measurements = append(s.measurements, m)
	}
	return s
}

func publishing(keys int, name, title string) series {
	return sides("Pub/Sub, publish: "+title+", 1 KB", "msg/s", keys, []string{"publish_" + name},
		func(ctx context.Context, r *rig, v volume) (reading, error) {
			before := r.load()
			rate, err := r.publish(ctx, subject, keys, v.load)
			return reading{[]float64{rate}, r.since(before)}, err
		})
}

func receiving(keys int, name, title string) series {
	return sides("Pub/Sub, receive: "+title+", 1 KB, one stream", "msg/s", keys, []string{"receive_" + name},
		func(ctx context.Context, r *rig, v volume) (reading, error) {
			if err := r.store(ctx, v.stored, keys, 100, body); err != nil {
				return reading{}, err
			}
			before := r.load()
			rate, err := r.receive(ctx, subject, v.stored, v.load)
			return reading{[]float64{rate}, r.since(before)}, err
		})
}

func latency() series {
	return sides("Pub/Sub, publish to callback: 40 messages/s", "ms", 0, []string{"latency_p50_ms", "latency_p99_ms"},
		func(ctx context.Context, r *rig, v volume) (reading, error) {
			took, err := r.latencies(ctx, v.samples)
			if err != nil {
				return reading{}, err
			}
			ms := func(p int) float64 { return percentile(took, p).Seconds() * 1e3 }
			return reading{[]float64{ms(50), ms(99)}, fmt.Sprintf("%d samples a run", len(took))}, nil
		})
}

func memoryOfMany() series {
	s := sides("Pub/Sub, memory: 1,000,000 messages of 100 bytes wait", "MB", 0, []string{"rss_1m_mb"},
		func(ctx context.Context, r *rig, _ volume) (reading, error) {
			if err := r.store(ctx, 1_000_000, 0, storeBatch, body[:100]); err != nil {
				return reading{}, err
			}
			return r.memory()
		})
	s.from, s.runs = normal, 1 // it hardly varies
	return s
}

func memoryOfKeys() series {
	const keys = 10_000
	s := sides("Pub/Sub, memory: 10,000 keys with a message of 1 KB each wait", "MB", keys, []string{"rss_10000keys_mb"},
		func(ctx context.Context, r *rig, _ volume) (reading, error) {
			if err := r.store(ctx, keys, keys, 1, body); err != nil {
				return reading{}, err
			}
			return r.memory()
		})
	s.runs = 1
	return s
}

func (r *rig) memory() (reading, error) {
	bytes, err := rss(r.server.pid)
	return reading{values: []float64{float64(bytes) / 1e6}}, err
}

package localpubsub

import (
	"context"
	"fmt"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig/broker"
	"example.com/lockstep/lab/bench/rig/process"
)

// manyKeys measures the memory along with the rates, in one run: filling the
// emulator with so many keys takes half a minute.
func manyKeys() measure.Series {
	const keys, perKey = 10_000, 2
	figures := []measure.Figure{
		{Name: "receive_10000keys", Unit: "msg/s"},
		{Name: "rss_10000keys_mb", Unit: "MB", Note: "after the receiving run"},
	}
	once := func(ctx context.Context, r *rig, v volume) (measure.Reading, error) {
		if _, err := r.store(ctx, keys*perKey, keys, perKey, body); err != nil {
			return measure.Reading{}, err
		}
		before := r.used()
		rate, err := r.receive(ctx, broker.Subject, keys*perKey, v.receive)
		if err != nil {
			return measure.Reading{}, err
		}
		found := r.perMessage(rate, before)
		mb, err := process.RSS(r.Server.PID)
		found.Values = append(found.Values, mb)
		return found, err
	}
	s := sides("receive and memory: 10,000 keys, 1 KB, one stream", keys, figures, once)
	s.Runs = 1
	return s
}

func manyMessages() measure.Series {
	const messages = 1_000_000
	memory := measure.Figure{Name: "rss_1m_mb", Unit: "MB"}
	once := func(ctx context.Context, r *rig, v volume) (measure.Reading, error) {
		empty, err := process.RSS(r.Server.PID)
		if err != nil {
			return measure.Reading{}, err
		}
		bounded, cancel := context.WithTimeout(ctx, v.fill)
		defer cancel()
		stored, err := r.store(bounded, messages, 0, storeBatch, body[:100])
		if err != nil {
			return measure.Reading{}, err
		}
		filled, err := process.RSS(r.Server.PID)
		if stored == messages || err != nil {
			return measure.Reading{Values: []float64{filled}}, err
		}
		note := fmt.Sprintf("extrapolated from %d messages, which is how far it came in %s", stored, v.fill)
		return measure.Reading{Values: []float64{empty + (filled-empty)*messages/float64(stored)}, Note: note}, nil
	}
	s := sides("memory: 1,000,000 messages of 100 bytes wait", 0, []measure.Figure{memory}, once)
	s.From, s.Runs = measure.Normal, 1 // hardly any variation
	return s
}

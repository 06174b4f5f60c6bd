package localpubsub

import (
	"context"
	"fmt"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// manyKeys measures the memory and the rate in the same run. To fill the emulator with this many
// keys takes half a minute.
func manyKeys() measure.Series {
	const keys, perKey = 10_000, 2
	figures := []measure.Figure{
		{Name: "receive_10000keys", Unit: "msg/s"},
		{Name: "rss_10000keys_mb", Unit: "MB", Note: "after the receiving run"},
	}
	once := func(ctx context.Context, s *setup, v volume) (measure.Reading, error) {
		if _, err := s.store(ctx, keys*perKey, keys, perKey, body); err != nil {
			return measure.Reading{}, err
		}
		before := s.used()
		rate, err := s.receive(ctx, rig.Topic, keys*perKey, v.receive)
		if err != nil {
			return measure.Reading{}, err
		}
		found := s.perMessage(rate, before)
		mb, err := rig.RSS(s.Broker.PID)
		found.Values = append(found.Values, mb)
		return found, err
	}
	s := compared("receive and memory: 10,000 keys, 1 KB, one stream", keys, figures, once)
	s.From = measure.Full
	return s
}

func manyMessages() measure.Series {
	const messages = 1_000_000
	memory := measure.Figure{Name: "rss_1m_mb", Unit: "MB"}
	once := func(ctx context.Context, s *setup, v volume) (measure.Reading, error) {
		empty, err := rig.RSS(s.Broker.PID)
		if err != nil {
			return measure.Reading{}, err
		}
		bounded, cancel := context.WithTimeout(ctx, v.fill)
		defer cancel()
		stored, err := s.store(bounded, messages, 0, storeBatch, body[:100])
		if err != nil {
			return measure.Reading{}, err
		}
		filled, err := rig.RSS(s.Broker.PID)
		if stored == messages || err != nil {
			return measure.Reading{Values: []float64{filled}}, err
		}
		note := fmt.Sprintf("extrapolated from %d messages, which is how far it came in %s", stored, v.fill)
		return measure.Reading{Values: []float64{empty + (filled-empty)*messages/float64(stored)}, Note: note}, nil
	}
	s := compared("memory: 1,000,000 messages of 100 bytes wait", 0, []measure.Figure{memory}, once)
	s.From = measure.Full // it takes a minute, and hardly varies
	return s
}

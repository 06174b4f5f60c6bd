package outbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/rig"
)

// writeVolumes is the total time of each side, by size.
var writeVolumes = [...]time.Duration{
	measure.Quick: 600 * time.Millisecond, measure.Normal: 1200 * time.Millisecond, measure.Full: 9 * time.Second,
}

// figureName returns the name of the figure of a transaction with the given number of writers.
func (w transaction) figureName(writers int) string {
	return "write." + w.name + "_" + strconv.Itoa(writers)
}

// write returns the series of the write path. The measured transactions create a video like the
// service. They are compared with the same transactions without the event, with the bare
// statements, and with a NOTIFY in the transaction. A relay runs, is notified and notifies others.
// But it publishes nothing, because its topic is missing. Another series has the cost of
// publishing.
func write(p *rig.Postgres) []measure.Series {
	vs := func(name string, of, to transaction, writers int, note string) measure.Derived {
		return measure.Ratio(name+"_"+strconv.Itoa(writers), of.figureName(writers), to.figureName(writers), note)
	}
	one, eight := writing(p, 1, business, appended, notifying), writing(p, 8, business, appended, limited, inTenant, notifying)
	sixteen, many := writing(p, 16, business, pipelined, appended), writing(p, 32, business, appended, noWake, notifying)
	one.Long = true
	one.Derived = []measure.Derived{vs("write.vs_business", appended, business, 1, ""), vs("write.vs_notify", appended, notifying, 1, "")}
	eight.Derived = []measure.Derived{
		vs("write.vs_business", appended, business, 8, ""), vs("write.vs_notify", appended, notifying, 8, ""),
		measure.Ratio("tenant.write_cost", limited.figureName(8), inTenant.figureName(8), "1.08 or less wanted"),
	}
	sixteen.Derived = []measure.Derived{
		vs("write.vs_pipelined", appended, pipelined, 16, "0.9 or more wanted"),
		vs("write.vs_business", appended, business, 16, "0.65 or more wanted"),
	}
	many.Derived = []measure.Derived{
		vs("write.wake_vs_none", appended, noWake, 32, "0.95 or more wanted"),
		vs("write.vs_business", appended, business, 32, ""),
		vs("write.vs_notify", appended, notifying, 32, ""),
	}
	return []measure.Series{one, eight, sixteen, many, wal(p)}
}

// writing returns a series of one measurement. The sides take turns of a fraction of a second,
// because the rate of commits depends on all other load of the machine. A relay runs during the
// measurement.
func writing(p *rig.Postgres, writers int, sides ...transaction) measure.Series {
	m := measure.Measurement{Run: func(ctx context.Context, size measure.Size) (_ measure.Reading, err error) {
		d, err := p.CopyOf(ctx, "the plain loop's tables", plainTables)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, d.Drop(ctx)) }()
		probe, err := rig.OpenProbe(ctx, rig.NoBroker)
		if err != nil {
			return measure.Reading{}, err
		}
		defer func() { err = errors.Join(err, probe.Close()) }()
		probe.Missing = true
		relays, err := rig.NewRelays(ctx, d, probe, 1)
		if err != nil {
			return measure.Reading{}, err
		}
		defer relays.Close()
		relays.Start(ctx)
		rates, err := writesInTurns(ctx, d, relays, sides, writers, writeVolumes[size])
		return measure.Reading{Values: rates}, err
	}}
	for _, w := range sides {
		m.Figures = append(m.Figures, measure.Figure{Name: w.figureName(writers), Unit: "tx/s", Note: w.note})
	}
	return measure.Series{Title: fmt.Sprintf("outbox: writing with %d writers", writers), Measurements: []measure.Measurement{m}}
}

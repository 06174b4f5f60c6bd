package localpubsub

import (
	"fmt"
	"os"
	"time"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/lab/bench/report"
	"example.com/lockstep/lab/bench/rig"
)

// used is the CPU time of the server and the client since their start, at the time at.
type used struct {
	server, client time.Duration
	at             time.Time
}

func (s *setup) used() used {
	return used{server: rig.CPU(s.Broker.PID), client: rig.CPU(os.Getpid()), at: time.Now()}
}

// perMessage returns a reading with the given rate. Its remark has each side's CPU time per message
// since before. The CPU time hardly depends on the other load of the machine, but the rate does.
func (s *setup) perMessage(rate float64, before used) measure.Reading {
	now := s.used()
	wall := now.at.Sub(before.at).Seconds()
	server, client := (now.server - before.server).Seconds(), (now.client - before.client).Seconds()
	if server == 0 || rate == 0 {
		return measure.Reading{Values: []float64{rate}}
	}
	micros := 1e6 / (rate * wall)
	return measure.Reading{Values: []float64{rate}, Note: fmt.Sprintf("CPU a message: server %s us, client %s us; cores busy: %.1f and %.1f",
		report.Display(server*micros), report.Display(client*micros), server/wall, client/wall)}
}

package pair

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"example.com/lockstep/lab/bench/measure"
)

const (
	// wantedP99 is the largest p99 in ms of a load that the pair bears.
	wantedP99 = 100
	// wantedErrors is the largest part of the units without a fresh read, at a load that the pair bears.
	wantedErrors = 0.001
	// clients is the number of clients. They are enough to keep two cores busy.
	clients = 32
)

var (
	// steps are the first offered loads, as parts of the full rate. The clients reach the full rate if each client
	// sends one request after the other. On every machine so far, the knee is between the first and the last step.
	steps = []float64{0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.35}
	// beyond are the offered loads above the knee, as multiples of the knee.
	beyond = []float64{2, 3}
)

// A walk is a function that does one unit of work, and returns its status.
type walk func(context.Context) (int, error)

// point is the result of one load.
type point struct {
	rate     float64     // offered units per second
	served   float64     // units per second that ended with a fresh read
	p50, p99 float64     // times in ms of the units with a fresh read; 0: there were none
	answers  map[int]int // numbers of units, by the status that walk returned
	offered  int         // number of offered units
}

// curve has the points of a run, and the recovery from the last load.
type curve struct {
	points   []point
	after    point // the load at half of the knee, which is offered last
	recovery time.Duration
}

// take measures a curve. Each of its points takes the duration step.
func take(ctx context.Context, do walk, step time.Duration) (c curve, err error) {
	var done atomic.Int64
	start := time.Now()
	if err := measure.Flood(ctx, clients, step, func(ctx context.Context, _ int) error {
		done.Add(1)
		_, err := do(ctx)
		return err
	}); err != nil {
		return c, err
	}
	full := measure.PerSecond(int(done.Load()), start)
	for _, part := range steps {
		if err := c.add(ctx, do, part*full, step); err != nil {
			return c, err
		}
	}
	// If the machine has other work, the knee is far below the first step.
	for rate := steps[0] * full / 2; c.knee().rate == 0; rate /= 2 {
		if rate < full/100 {
			return c, fmt.Errorf("no load down to %.0f videos/s has a p99 of %d ms: the machine is too busy", 2*rate, wantedP99)
		}
		if err := c.add(ctx, do, rate, step); err != nil {
			return c, err
		}
	}
	knee := c.knee().rate
	for _, part := range beyond {
		if part*knee <= c.top().rate {
			continue
		}
		if err := c.add(ctx, do, part*knee, step); err != nil {
			return c, err
		}
	}
	err = c.recover(ctx, do, knee/2, step)
	return c, err
}

// recover offers a load that the pair bears, after an overload. At first the pair still works off the
// overload, and the time for that is c.recovery. Then recover measures the point c.after.
func (c *curve) recover(ctx context.Context, do walk, rate float64, step time.Duration) (err error) {
	first := 2 * step
	if _, c.recovery, err = offer(ctx, do, rate, first); err != nil {
		return err
	}
	var slow time.Duration
	if c.after, slow, err = offer(ctx, do, rate, step); slow > 0 {
		c.recovery = first + slow
	}
	return err
}

func (c *curve) add(ctx context.Context, do walk, rate float64, step time.Duration) error {
	p, _, err := offer(ctx, do, rate, step)
	c.points = append(c.points, p)
	return err
}

// offer offers a load for the duration limit. Some units may get no fresh read, or take longer than
// wantedP99. slow is the time from the beginning of the load to the last such unit.
func offer(ctx context.Context, do walk, rate float64, limit time.Duration) (p point, slow time.Duration, err error) {
	n := max(1, int(rate*limit.Seconds()))
	codes := make([]int, n)
	took, err := measure.Offered(ctx, rate, n, func(ctx context.Context, i int) (err error) {
		codes[i], err = do(ctx)
		return err
	})
	if err != nil {
		return p, 0, err
	}
	p = point{rate: rate, offered: n, answers: map[int]int{}}
	var fresh []time.Duration
	for i, code := range codes {
		p.answers[code]++
		if code == http.StatusOK {
			fresh = append(fresh, took[i])
		}
		if code != http.StatusOK || measure.Milliseconds(took[i]) > wantedP99 {
			slow = time.Duration(float64(i+1) / rate * float64(time.Second))
		}
	}
	p.served = float64(len(fresh)) / limit.Seconds()
	if len(fresh) > 0 {
		values := measure.Percentiles(fresh, 50, 99)
		p.p50, p.p99 = values[0], values[1]
	}
	return p, slow, nil
}

// held reports whether the pair bears the load of p.
func (p point) held() bool {
	failed := p.offered - p.answers[http.StatusOK]
	return float64(failed) <= wantedErrors*float64(p.offered) && p.p99 > 0 && p.p99 <= wantedP99
}

// others returns the number of answers that are neither a fresh read nor a refusal.
func (p point) others() (n int) {
	for code, times := range p.answers {
		if code != http.StatusOK && !isRefusal(code) {
			n += times
		}
	}
	return n
}

func isRefusal(code int) bool {
	return code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable
}

// knee returns the point of the highest load that the pair bears. If there is none, it returns the
// zero value.
func (c curve) knee() (knee point) {
	for _, p := range c.points {
		if p.held() && p.rate > knee.rate {
			knee = p
		}
	}
	return knee
}

// top returns the point of the highest load.
func (c curve) top() point {
	return slices.MaxFunc(c.points, func(a, b point) int { return cmp.Compare(a.rate, b.rate) })
}

// otherErrors returns the number of answers that are neither a fresh read nor a refusal, at all loads
// beyond the knee.
func (c curve) otherErrors() (n int) {
	for _, p := range c.points {
		if p.rate > c.knee().rate {
			n += p.others()
		}
	}
	return n
}

// note lists the answers at all loads beyond the knee.
func (c curve) note() string {
	all := map[int]int{}
	for _, p := range c.points {
		if p.rate <= c.knee().rate {
			continue
		}
		for code, n := range p.answers {
			all[code] += n
		}
	}
	var listed []string
	for _, code := range slices.Sorted(maps.Keys(all)) {
		listed = append(listed, fmt.Sprintf("%d x %d", all[code], code))
	}
	return "beyond the knee: " + strings.Join(listed, ", ")
}

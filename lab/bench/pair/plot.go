package pair

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"example.com/lockstep/lab/bench/report"
)

// curves has the curves of all runs.
type curves []curve

// draw adds the curve more. Then it replaces the file by the picture of the run with the median
// knee.
func (c *curves) draw(more curve, file string) error {
	*c = append(*c, more)
	byKnee := slices.SortedFunc(slices.Values(*c), func(a, b curve) int { return cmp.Compare(a.knee().rate, b.knee().rate) })
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(byKnee[len(byKnee)/2].svg()), 0o644)
}

// The picture has two panels above each other. Both have the same axis of the offered load.
const (
	width, height = 760, 560
	left, right   = 70, 640
	upper, lower  = 60, 370 // the tops of the panels
	tall, short   = 260, 130
)

// style is legible on a light page and on a dark page, because the picture has its own background.
const style = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .ground { fill: #ffffff } .grid { stroke: #d1d9e0 }
.title { font-weight: 600; font-size: 15px }
.p50 { stroke: #0969da } .p99 { stroke: #9a3e00 } .fresh { stroke: #1a7f37 } .refused { stroke: #8250df } .mark { stroke: #57606a }
polyline, .mark { fill: none; stroke-width: 2 } .mark { stroke-dasharray: 5 4; stroke-width: 1.5 } circle { fill: #ffffff; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .ground { fill: #0d1117 } .grid { stroke: #30363d } circle { fill: #0d1117 }
.p50 { stroke: #58a6ff } .p99 { stroke: #ff9b50 } .fresh { stroke: #56d364 } .refused { stroke: #d2a8ff } .mark { stroke: #8b949e } }
</style>
`

// svg returns the picture of the curve.
func (c curve) svg() string {
	points := slices.SortedFunc(slices.Values(c.points), func(a, b point) int { return cmp.Compare(a.rate, b.rate) })
	var d drawing
	fmt.Fprintf(&d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title">`+"\n", width, height)
	d.WriteString(style)
	fmt.Fprintf(&d, `<rect class="ground" width="%d" height="%d"/>`+"\n", width, height)
	fmt.Fprintf(&d, `<text id="title" class="title" x="%d" y="26">From the write to the fresh read, under rising load</text>`+"\n", left)
	rates := linear(c.top().rate, left, right)
	d.latencies(points, rates)
	d.answers(points, rates)
	d.knee(c.knee(), rates)
	d.WriteString("</svg>\n")
	return d.String()
}

// drawing is the text of the picture.
type drawing struct{ strings.Builder }

// latencies draws the upper panel, which has times on a logarithmic scale.
func (d *drawing) latencies(points []point, rates axis) {
	top := 10.
	for _, p := range points {
		top = max(top, p.p99)
	}
	times := logarithmic(1, math.Pow(10, math.Ceil(math.Log10(top))), upper+tall, upper)
	d.frame(rates, times, "time, ms")
	d.line("p50", points, rates, times, "p50", func(p point) float64 { return p.p50 })
	d.line("p99", points, rates, times, "p99", func(p point) float64 { return p.p99 })
	wanted := times.at(wantedP99)
	fmt.Fprintf(d, `<line class="mark" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`+"\n", left, right, wanted, wanted)
}

// answers draws the lower panel. It has the units per second that end with a fresh read, and the
// units per second that are refused.
func (d *drawing) answers(points []point, rates axis) {
	top := 0.
	for _, p := range points {
		top = max(top, p.served, p.refused())
	}
	perSecond := linear(top, lower+short, lower)
	d.frame(rates, perSecond, "a second")
	d.line("fresh", points, rates, perSecond, "fresh reads", func(p point) float64 { return p.served })
	d.line("refused", points, rates, perSecond, "429, 503", point.refused)
	fmt.Fprintf(d, `<text x="%d" y="%d" text-anchor="middle">offered load, videos a second</text>`+"\n", (left+right)/2, lower+short+46)
}

// refused returns the number of units per second that were answered with 429 or 503.
func (p point) refused() float64 {
	return p.rate * float64(p.answers[http.StatusTooManyRequests]+p.answers[http.StatusServiceUnavailable]) / float64(p.offered)
}

// knee marks the knee through both panels.
func (d *drawing) knee(p point, rates axis) {
	x := rates.at(p.rate)
	fmt.Fprintf(d, `<line class="mark" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`+"\n", x, x, upper-8, lower+short)
	fmt.Fprintf(d, `<text x="%.1f" y="%d" text-anchor="middle">the knee: %s a second, p99 %s ms</text>`+"\n",
		max(x, left+130), upper-13, report.Display(math.Round(p.rate)), report.Display(p.p99))
}

// frame draws the grid of a panel, and the numbers of both axes.
func (d *drawing) frame(x, y axis, name string) {
	for _, v := range y.ticks {
		at := y.at(v)
		fmt.Fprintf(d, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, right, at, at, left-8, at+4, report.Display(v))
	}
	bottom := y.at(y.ticks[0])
	for _, v := range x.ticks {
		at := x.at(v)
		fmt.Fprintf(d, `<line class="grid" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f" text-anchor="middle">%s</text>`+"\n",
			at, at, bottom, bottom+5, at, bottom+20, report.Display(v))
	}
	top := y.at(y.ticks[len(y.ticks)-1])
	fmt.Fprintf(d, `<text transform="translate(18 %.1f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+bottom)/2, name)
}

// line draws a line with its name at its end. The tooltip of each point has the numbers of the
// point.
func (d *drawing) line(class string, points []point, x, y axis, name string, value func(point) float64) {
	var path, dots strings.Builder
	var endX, endY float64
	for _, p := range points {
		v := value(p)
		if v < y.low {
			continue
		}
		endX, endY = x.at(p.rate), y.at(v)
		fmt.Fprintf(&path, "%.1f,%.1f ", endX, endY)
		fmt.Fprintf(&dots, `<circle class="%s" cx="%.1f" cy="%.1f" r="3"><title>%s at %s a second: %s</title></circle>`+"\n",
			class, endX, endY, name, report.Display(math.Round(p.rate)), report.Display(v))
	}
	fmt.Fprintf(d, `<polyline class="%s" points="%s"/>`+"\n%s", class, strings.TrimSpace(path.String()), dots.String())
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f">%s</text>`+"\n", endX+10, endY+4, name)
}

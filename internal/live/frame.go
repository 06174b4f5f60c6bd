package live

import "time"

// The bounds of a frame. The source of frames must keep them, because the page draws no more.
const (
	// MaxEvents is how many events a frame shows, whatever their rate.
	MaxEvents = 24
	// MaxPoints is how many points the plot of latencies has. They cover a minute.
	MaxPoints = 240
)

// Frame is the state of the pair at one time, as the page shows it. It has sums and a sample of the
// events, so its size does not depend on the rate of events.
type Frame struct {
	Stages   []Stage   `json:"stages"`
	Lag      []Point   `json:"lag"`    // oldest first, at most MaxPoints
	Parts    []Part    `json:"parts"`  // the processes and servers
	Events   []Event   `json:"events"` // newest first, at most MaxEvents
	Outcomes []Outcome `json:"outcomes"`
	Seen     []Seen    `json:"seen"`
	// Running is the name of the button whose action runs, or empty.
	Running string `json:"running"`
}

// Stage is a place that events pass, such as the broker.
type Stage struct {
	Name string `json:"name"`
	// Rate is the number of events, or of reads, per second in the last seconds.
	Rate float64 `json:"rate"`
	// Total is the number of events, or of reads, since the page's source began to count.
	Total int64 `json:"total"`
	// Notes are further numbers, such as the backlog.
	Notes []Note `json:"notes"`
}

// Note is a number with its name. Alert says that the number should be 0 and is not.
type Note struct {
	Name  string `json:"name"`
	Value int64  `json:"value"`
	Alert bool   `json:"alert"`
}

// Point has the median and the 99th percentile of the latency from commit to visible, in
// milliseconds, within the time of one frame. Both are negative if no event became visible.
type Point struct {
	Median float64 `json:"p50"`
	High   float64 `json:"p99"`
}

// Part is a process or a server. State is up, away or starting.
type Part struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail"`
}

// Event is one event of the sample. PublishedMS and AppliedMS are milliseconds since the event's
// commit. They are negative until the event is published, or applied. State is pending, published,
// applied, held, parked or dead.
type Event struct {
	Aggregate   string  `json:"aggregate"`
	Version     int64   `json:"version"`
	Type        string  `json:"type"`
	State       string  `json:"state"`
	PublishedMS float64 `json:"published_ms"`
	AppliedMS   float64 `json:"applied_ms"`
}

// Button is an action of the page's source. Expect is one sentence about the visible effect of the
// action. If the action is not possible here, Without is the reason. Otherwise Without is empty.
type Button struct {
	Name, Group, Label, Expect, Without string
}

// The results of an action.
const (
	Running = "running"
	Held    = "held"   // the action ended as Expect says
	Broken  = "broken" // the action ended otherwise, or was cut off
)

// Outcome is the last result of a button, with one sentence of evidence.
type Outcome struct {
	Name   string `json:"name"`
	Result string `json:"result"`
	Said   string `json:"said"`
}

// Promise is a promise that the page marks when it was seen to hold.
type Promise struct{ ID, Name, Text string }

// Seen is a promise that was seen to hold, with the evidence and the time.
type Seen struct {
	ID   string    `json:"id"`
	Said string    `json:"said"`
	At   time.Time `json:"at"`
}

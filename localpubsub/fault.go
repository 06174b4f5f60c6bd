package localpubsub

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Kind is the effect of a [Fault].
type Kind string

// These are the faults of calls. They apply to the method that the fault names, or to all methods
// if it names none.
const (
	// Latency delays a call. On a stream it delays each response.
	Latency Kind = "latency"
	// Outage answers UNAVAILABLE without carrying out the request. It also ends streams.
	Outage Kind = "outage"
	// Throttle answers RESOURCE_EXHAUSTED without carrying out the request.
	Throttle Kind = "throttle"
	// AnswerLost carries out the request and then answers UNAVAILABLE.
	AnswerLost Kind = "answer_lost"
	// Late delays a call like Latency. But the request is carried out even if the caller gives up
	// during the wait. It is not carried out if the server closes during the wait.
	Late Kind = "late"
)

// These are the faults of messages.
const (
	// Reject refuses a publish request with INVALID_ARGUMENT if one of the messages has Key as its
	// ordering key or as the value of an attribute.
	Reject Kind = "reject"
	// Repeat publishes the messages of a request twice. The two copies have the same content and
	// different ids.
	Repeat Kind = "repeat"
	// Resend delivers a message again although its acknowledgement was answered
	// with OK. Resend does not apply to exactly-once subscriptions.
	Resend Kind = "resend"
	// AckLost answers OK to acknowledgements and drops them. So the messages are delivered again
	// after their deadline. AckLost does not apply to exactly-once subscriptions.
	AckLost Kind = "ack_lost"
	// Reorder delivers messages in another order than they were published, but only where Pub/Sub
	// gives no order. So it reorders messages without a key, and reorders the keys relative to each
	// other.
	Reorder Kind = "reorder"
	// Reset ends a stream instead of sending a response. The stream's messages
	// stay leased.
	Reset Kind = "reset"
	// Slow limits a stream to Rate messages per second.
	Slow Kind = "slow"
)

// Fault is one failure to inject. Each call or delivery to which the fault applies is an
// opportunity. The seed and the number of earlier opportunities decide whether the fault strikes.
// For Resend, the serial number of the delivery takes the place of the number of opportunities. So
// the same traffic meets the same faults again.
type Fault struct {
	Kind Kind `json:"kind"`
	// Method is the name of an RPC, such as Publish or StreamingPull. A fault of calls applies to this
	// RPC only, or to every RPC if Method is empty. Of the faults of calls, only Latency and Outage
	// apply to StreamingPull. Of the faults of messages, Reject and Repeat apply to Publish, and Reset
	// and Slow apply to StreamingPull. These four may name their RPC. Resend, AckLost and Reorder take
	// no method.
	Method string `json:"method,omitempty"`
	// Probability is the fault's probability at each opportunity, up to 1. Zero
	// means that the fault always strikes.
	Probability float64 `json:"probability,omitempty"`
	// Times bounds how often the fault strikes. Zero means no limit.
	Times int64 `json:"times,omitempty"`
	// Delay is the shortest wait of Latency and Late. If it is zero, the wait depends on Mean only.
	Delay Duration `json:"delay,omitzero"`
	// Mean is the mean of an exponentially distributed wait that is added to
	// Delay. The added wait is at most ten times the mean. Zero means that
	// nothing is added.
	Mean Duration `json:"mean,omitzero"`
	// Key is the ordering key or attribute value that Reject refuses.
	Key string `json:"key,omitempty"`
	// Rate is the limit of Slow, in messages per second.
	Rate float64 `json:"rate,omitempty"`
}

// Duration is a time.Duration that JSON writes as text, such as "5ms".
type Duration time.Duration

// MarshalText is for encoding/json.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText is for encoding/json.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

const longestFault = Duration(10 * time.Minute)

func (d Duration) valid() bool { return d >= 0 && d <= longestFault }

// faults holds the present faults.
type faults struct {
	current atomic.Pointer[plan]
	mu      sync.Mutex
	cut     chan struct{} // closed when an outage begins, which ends the streams
	late    sync.WaitGroup
	closing <-chan struct{} // closed with the server, which ends the waits of Late
}

func newFaults(closing <-chan struct{}) *faults {
	f := &faults{cut: make(chan struct{}), closing: closing}
	f.current.Store(&plan{})
	return f
}

// SetFaults replaces all faults by the given faults. If none is given, there are no faults
// afterwards. If a fault has an invalid field, SetFaults changes nothing and returns an error that
// names the field. An outage of StreamingPull also ends the open streams.
func (s *Server) SetFaults(seed uint64, all ...Fault) error {
	all = slices.Clone(all) // the caller may change its slice
	for _, f := range all {
		if err := s.checkFault(f); err != nil {
			return err
		}
	}
	s.faults.current.Store(&plan{
		seed: seed, faults: all, asked: make([]atomic.Uint64, len(all)), struck: make([]atomic.Int64, len(all)),
	})
	for _, f := range all {
		if f.Kind == Outage && (f.Method == "" || f.Method == streamingPull) {
			s.faults.cutStreams()
		}
	}
	return nil
}

func (f *faults) cutStreams() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
}

func (f *faults) streamsCut() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

func (f *faults) wait() { f.late.Wait() }

var errOutage = status.Error(codes.Unavailable, "injected fault: outage")

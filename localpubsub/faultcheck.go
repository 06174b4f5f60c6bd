package localpubsub

import (
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
)

const (
	publish       = "Publish"
	streamingPull = "StreamingPull"
)

func (s *Server) checkFault(f Fault) error {
	if err := f.checkKind(); err != nil {
		return err
	}
	if f.Method != "" {
		if err := s.checkMethod(f); err != nil {
			return err
		}
	}
	if f.Probability < 0 || f.Probability > 1 || f.Times < 0 {
		return fmt.Errorf("fault %s: probability: %v and times: %d: from 0 to 1, and not negative", f.Kind, f.Probability, f.Times)
	}
	return nil
}

// checkKind checks that the kind exists, and that the fields that this kind needs are valid.
func (f Fault) checkKind() error {
	switch f.Kind {
	case Outage, Throttle, AnswerLost, Repeat, Resend, AckLost, Reorder, Reset:
	case Latency, Late:
		if f.Delay+f.Mean == 0 || !f.Delay.valid() || !f.Mean.valid() {
			return fmt.Errorf("fault %s: delay and mean: one is needed, neither above %s", f.Kind, time.Duration(longestFault))
		}
	case Reject:
		if f.Key == "" {
			return fmt.Errorf("fault %s: key: it is needed", f.Kind)
		}
	case Slow:
		if f.Rate <= 0 {
			return fmt.Errorf("fault %s: rate: %v is not positive", f.Kind, f.Rate)
		}
	default:
		return fmt.Errorf("fault: kind: there is no %q", f.Kind)
	}
	return nil
}

// checkMethod checks that the server has the method, and that the fault can strike there.
func (s *Server) checkMethod(f Fault) error {
	known := false
	for _, service := range s.grpc.GetServiceInfo() {
		known = known || slices.ContainsFunc(service.Methods, func(m grpc.MethodInfo) bool { return m.Name == f.Method })
	}
	if !known {
		return fmt.Errorf("fault %s: method: there is no %q", f.Kind, f.Method)
	}
	if !f.appliesTo(f.Method) {
		return fmt.Errorf("fault %s: method: it does not apply to %s", f.Kind, f.Method)
	}
	return nil
}

func (f Fault) appliesTo(method string) bool {
	switch f.Kind {
	case Latency, Outage:
		return true
	case Throttle, AnswerLost, Late:
		return method != streamingPull
	case Reject, Repeat:
		return method == publish
	case Reset, Slow:
		return method == streamingPull
	case Resend, AckLost, Reorder:
		return false // an acknowledgement or delivery may come by a call or by a stream
	}
	return false
}

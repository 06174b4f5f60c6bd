package localpubsub

import (
	"context"
	"maps"
	"path"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/localpubsub/internal/resource"
)

// unary applies the faults of calls to one call.
func (f *faults) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	p := f.current.Load()
	if len(p.faults) == 0 {
		return handle(ctx, req)
	}
	method := path.Base(info.FullMethod)
	if _, strikes := p.strikes(Outage, method); strikes {
		return nil, errOutage
	}
	if _, strikes := p.strikes(Throttle, method); strikes {
		return nil, status.Error(codes.ResourceExhausted, "injected fault: throttled")
	}
	if fault, strikes := p.strikes(Latency, method); strikes {
		if err := pause(ctx, p.wait(fault)); err != nil {
			return nil, err
		}
	}
	if err := p.reject(req); err != nil {
		return nil, err
	}
	do := func(ctx context.Context) (any, error) { return p.disturbed(ctx, req, method, handle) }
	if fault, strikes := p.strikes(Late, method); strikes {
		return f.lately(ctx, p.wait(fault), do)
	}
	return do(ctx)
}

// disturbed carries out the request. If Repeat strikes, it carries out the request twice. If
// AnswerLost strikes, it returns an error although the request succeeded.
func (p *plan) disturbed(ctx context.Context, req any, method string, handle grpc.UnaryHandler) (any, error) {
	if request, ok := req.(*pubsubpb.PublishRequest); ok {
		if _, strikes := p.strikes(Repeat, method); strikes {
			if _, err := handle(ctx, proto.CloneOf(request)); err != nil {
				return nil, err
			}
		}
	}
	answer, err := handle(ctx, req)
	if _, strikes := p.strikes(AnswerLost, method); strikes && err == nil {
		return nil, status.Error(codes.Unavailable, "injected fault: the answer is lost")
	}
	return answer, err
}

// lately carries out the request after wait, even if the caller has given up. It does not carry out
// the request if the server closes before that.
func (f *faults) lately(ctx context.Context, wait time.Duration, do func(context.Context) (any, error)) (any, error) {
	type result struct {
		answer any
		err    error
	}
	done := make(chan result, 1)
	f.late.Go(func() {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
			answer, err := do(context.WithoutCancel(ctx))
			done <- result{answer, err}
		case <-f.closing: // the server then ends the call, too
		}
	})
	select {
	case r := <-done:
		return r.answer, r.err
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (p *plan) reject(req any) error {
	request, ok := req.(*pubsubpb.PublishRequest)
	if !ok {
		return nil
	}
	for i, f := range p.faults {
		if f.Kind != Reject || !slices.ContainsFunc(request.GetMessages(), f.names) {
			continue
		}
		if p.draw(i, p.asked[i].Add(1)) {
			return resource.Invalid("messages", "injected fault: a message of %q is refused", f.Key)
		}
	}
	return nil
}

// names reports whether the fault applies to the message.
func (f Fault) names(m *pubsubpb.PubsubMessage) bool {
	return m.GetOrderingKey() == f.Key || slices.Contains(slices.Collect(maps.Values(m.GetAttributes())), f.Key)
}

// stream applies the faults of streams. It takes the signal of the next outage before it looks at the
// present faults, so that an outage that begins in between ends the stream, too.
func (f *faults) stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	cut := f.streamsCut()
	if _, strikes := f.current.Load().strikes(Outage, path.Base(info.FullMethod)); strikes {
		return errOutage
	}
	return handle(server, &disturbedStream{ServerStream: stream, faults: f, cut: cut})
}

// A disturbedStream delays, slows and breaks the sending of responses.
type disturbedStream struct {
	grpc.ServerStream

	faults *faults
	cut    <-chan struct{} // closed by the next outage
}

// cutKey is the context key of disturbedStream.cut.
type cutKey struct{}

// Context returns the context of the stream, which also has cut.
func (s *disturbedStream) Context() context.Context {
	return context.WithValue(s.ServerStream.Context(), cutKey{}, s.cut)
}

// cutOf returns the channel that the next outage closes. ctx is the context of a disturbedStream.
func cutOf(ctx context.Context) <-chan struct{} {
	cut, _ := ctx.Value(cutKey{}).(<-chan struct{})
	return cut
}

// SendMsg sends a response, unless a fault prevents it.
func (s *disturbedStream) SendMsg(m any) error {
	p := s.faults.current.Load()
	batch, messages := m.(frame)
	if len(p.faults) == 0 || !messages {
		return s.ServerStream.SendMsg(m)
	}
	if _, strikes := p.strikes(Reset, streamingPull); strikes {
		return status.Error(codes.Unavailable, "injected fault: the stream is reset")
	}
	var wait time.Duration
	if fault, strikes := p.strikes(Latency, streamingPull); strikes {
		wait = p.wait(fault)
	}
	if fault, strikes := p.strikes(Slow, streamingPull); strikes {
		wait += time.Duration(float64(countMessages(batch)) / fault.Rate * float64(time.Second))
	}
	if err := pause(s.Context(), wait); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func pause(ctx context.Context, wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

package localpubsub_test

import (
	"context"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

func (p *player) openStream() {
	if len(p.streams) == 3 {
		return
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	opened, err := p.StreamingPull(ctx)
	if err == nil {
		err = opened.Send(&pubsubpb.StreamingPullRequest{
			Subscription: subscriptionName, StreamAckDeadlineSeconds: 10, MaxOutstandingMessages: int64(p.random.IntN(8)),
		})
	}
	if err != nil {
		cancel()
		return
	}
	p.streams = append(p.streams, &stream{Subscriber_StreamingPullClient: opened, w: p.world, cancel: cancel})
	p.drain()
}

// drain reads all responses that the streams have sent so far: a keep-alive is
// answered only when nothing else is left to send.
func (p *player) drain() {
	alive := p.streams[:0]
	for _, s := range p.streams {
		if p.drained(s) {
			alive = append(alive, s)
		} else {
			s.cancel()
			p.lostSome()
		}
	}
	p.streams = alive
}

func (p *player) drained(s *stream) bool {
	if err := s.Send(&pubsubpb.StreamingPullRequest{}); err != nil {
		return false
	}
	for {
		response, err := s.Recv()
		if err != nil {
			return false
		}
		if len(response.GetReceivedMessages()) == 0 {
			return true
		}
		p.take(response.GetReceivedMessages(), s)
	}
}

// breakStream cancels a stream, or half-closes it and reads the rest. Its
// messages stay leased until their deadline.
func (p *player) breakStream() {
	if len(p.streams) == 0 {
		return
	}
	last := len(p.streams) - 1
	broken := p.streams[last]
	p.streams = p.streams[:last]
	if p.random.IntN(2) == 0 {
		broken.cancel()
		p.lostSome() // the server sends it more until it notices
	} else if err := broken.CloseSend(); err == nil {
		for err == nil {
			var response *pubsubpb.StreamingPullResponse
			response, err = broken.Recv()
			p.take(response.GetReceivedMessages(), broken)
		}
	}
	p.drain()
}

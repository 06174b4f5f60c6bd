package localpubsub

import (
	"maps"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/localpubsub/internal/resource"
)

// settle carries out a request on the stream. An empty request is a keep-alive.
func (s *stream) settle(request *pubsubpb.StreamingPullRequest) error {
	if deadline := request.GetStreamAckDeadlineSeconds(); deadline != 0 {
		if err := resource.CheckDeadline(deadline, "stream_ack_deadline_seconds"); err != nil {
			return err
		}
		s.sub.setLeaseTime(s.consumer, time.Duration(deadline)*time.Second)
	}
	if proto.Size(request) == 0 {
		return s.ping()
	}
	if err := s.acknowledge(request.GetAckIds()); err != nil {
		return err
	}
	return s.modify(request)
}

// setLeaseTime sets the duration of c's future leases.
func (s *subscription) setLeaseTime(c *consumer, deadline time.Duration) {
	s.lock()
	defer s.unlock()
	c.deadline = deadline
}

func (s *stream) acknowledge(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	failed, err := s.sub.acknowledge(ids)
	if err != nil || !s.sub.properties().GetExactlyOnceDeliveryEnabled() {
		return err
	}
	return s.reply(&pubsubpb.StreamingPullResponse{
		AcknowledgeConfirmation: &pubsubpb.StreamingPullResponse_AcknowledgeConfirmation{
			AckIds:          failed.others(ids),
			InvalidAckIds:   failed.of(invalidAckID),
			UnorderedAckIds: failed.of(unorderedAckID),
		},
	})
}

// modify changes the deadlines of the ids.
func (s *stream) modify(request *pubsubpb.StreamingPullRequest) error {
	ids, deadlines := request.GetModifyDeadlineAckIds(), request.GetModifyDeadlineSeconds()
	if len(ids) != len(deadlines) {
		return resource.Invalid("modify_deadline_seconds", "%d deadlines for %d ack ids", len(deadlines), len(ids))
	}
	failed, err := s.modifyEach(ids, deadlines)
	if err != nil || len(ids) == 0 || !s.sub.properties().GetExactlyOnceDeliveryEnabled() {
		return err
	}
	return s.reply(&pubsubpb.StreamingPullResponse{
		ModifyAckDeadlineConfirmation: &pubsubpb.StreamingPullResponse_ModifyAckDeadlineConfirmation{
			AckIds: failed.others(ids), InvalidAckIds: failed.of(invalidAckID),
		},
	})
}

// modifyEach changes the deadlines one by one, because each id has its own. It passes all nacks of the
// request to the subscription last, and in one call. A nack also returns the later leased messages of
// its key, and the ids of those would not count in a later call.
func (s *stream) modifyEach(ids []string, deadlines []int32) (failures, error) {
	all := failures{}
	var nacks []string
	for i, id := range ids {
		if err := resource.CheckModify(deadlines[i], "modify_deadline_seconds"); err != nil {
			return nil, err
		}
		if deadlines[i] == 0 {
			nacks = append(nacks, id)
			continue
		}
		failed, err := s.sub.modify([]string{id}, time.Duration(deadlines[i])*time.Second)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, failed)
	}
	if len(nacks) == 0 {
		return all, nil
	}
	failed, err := s.sub.modify(nacks, 0)
	maps.Copy(all, failed)
	return all, err
}

// maxReplies is the maximum number of responses that wait for a client. A client that does not read
// its responses could otherwise fill the memory.
const maxReplies = 1000

var errUnread = status.Error(codes.ResourceExhausted, "the client sends requests and does not read the responses")

// ping makes run answer a keep-alive. ping does not send the answer itself, because only one goroutine
// may send at a time.
func (s *stream) ping() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pings == maxReplies {
		return errUnread
	}
	s.pings++
	s.consumer.signal()
	return nil
}

// reply makes run send the response, because only one goroutine may send at a time.
func (s *stream) reply(response *pubsubpb.StreamingPullResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == maxReplies {
		return errUnread
	}
	s.pending = append(s.pending, response)
	s.consumer.signal()
	return nil
}

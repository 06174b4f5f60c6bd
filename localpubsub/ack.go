package localpubsub

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/localpubsub/internal/resource"
)

// An exactly-once subscription gives one of these reasons for a failed acknowledgement. Client
// libraries search for these exact words
// (https://cloud.google.com/pubsub/docs/exactly-once-delivery).
const (
	invalidAckID   = "PERMANENT_FAILURE_INVALID_ACK_ID"
	unorderedAckID = "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
)

// ackID names one delivery of a message by a subscription.
type ackID struct{ subscription, message, serial uint64 }

const (
	ackIDBase      = 36
	ackIDSeparator = "-"
)

func (id ackID) String() string {
	text := make([]byte, 0, 40)
	text = strconv.AppendUint(text, id.subscription, ackIDBase)
	text = append(text, ackIDSeparator...)
	text = strconv.AppendUint(text, id.message, ackIDBase)
	text = append(text, ackIDSeparator...)
	return string(strconv.AppendUint(text, id.serial, ackIDBase))
}

func parseAckID(text string) (id ackID, ok bool) {
	subscription, rest, _ := strings.Cut(text, ackIDSeparator)
	message, serial, _ := strings.Cut(rest, ackIDSeparator)
	var errs [3]error
	id.subscription, errs[0] = strconv.ParseUint(subscription, ackIDBase, 64)
	id.message, errs[1] = strconv.ParseUint(message, ackIDBase, 64)
	id.serial, errs[2] = strconv.ParseUint(serial, ackIDBase, 64)
	return id, errs == [3]error{}
}

// parseAckIDs returns the ids of a request in message order. So an exactly-once subscription can
// detect an acknowledgement that is out of order. If one id does not belong to this subscription,
// parseAckIDs refuses the whole request.
func (s *subscription) parseAckIDs(texts []string) ([]ackID, error) {
	if len(texts) == 0 {
		return nil, resource.Invalid("ack_ids", "at least one is needed")
	}
	ids := make([]ackID, len(texts))
	for i, text := range texts {
		id, ok := parseAckID(text)
		if !ok || id.subscription != s.number {
			return nil, resource.Invalid("ack_ids", "%q is no ack id of %s", text, s.name)
		}
		ids[i] = id
	}
	slices.SortFunc(ids, func(a, b ackID) int { return cmp.Compare(a.message, b.message) })
	return ids, nil
}

// current returns the entry that the delivery with this ack id delivered. It returns nil if the
// message has been delivered again or settled since that delivery, or must be delivered again after
// an earlier message of its key.
func (s *subscription) current(id ackID) *entry {
	if e := s.delivered[id.message]; e != nil && e.serial == id.serial {
		return e
	}
	return nil
}

// acknowledge settles the messages of the ids. Without exactly-once delivery, an acknowledgement
// after the deadline counts only if the message has not been delivered again. With exactly-once
// delivery, failed has the reason for each id whose acknowledgement did not count.
func (s *subscription) acknowledge(texts []string) (failed failures, err error) {
	ids, err := s.parseAckIDs(texts)
	if err != nil {
		return nil, err
	}
	s.lock()
	defer s.unlock()
	s.touch()
	s.expireLeases(s.server.now())
	if !s.exactlyOnce && s.server.faults.losesAck() {
		return nil, nil
	}
	for _, id := range ids {
		e := s.current(id)
		switch {
		case e == nil:
			failed.add(id, invalidAckID)
		case s.exactlyOnce:
			if reason := s.settleOnce(e); reason != "" {
				failed.add(id, reason)
			}
		default:
			s.settleLate(e)
		}
	}
	s.schedule()
	return failed.reported(s), nil
}

// settleOnce applies an acknowledgement with exactly-once delivery. If the
// acknowledgement does not count, it returns the reason.
func (s *subscription) settleOnce(e *entry) (reason string) {
	switch {
	case e.state != leased:
		return invalidAckID
	case e.queue != nil && e.queue.first != e:
		return unorderedAckID
	}
	s.settle(e)
	return ""
}

// settleLate applies an acknowledgement without exactly-once delivery. The acknowledgement may come
// after the deadline.
func (s *subscription) settleLate(e *entry) {
	if e.state == leased && s.server.faults.resend(e) {
		s.giveBack(e)
		return
	}
	s.settle(e)
}

// modify makes the leases of the ids end after deadline, counted from now. A deadline of zero is a
// nack.
func (s *subscription) modify(texts []string, deadline time.Duration) (failed failures, err error) {
	ids, err := s.parseAckIDs(texts)
	if err != nil {
		return nil, err
	}
	if deadline == 0 {
		// A nack also returns the later leased messages of its key, and counts no failure of those. The
		// request may have nacks of those, too, and each of its nacks must count. So the nack of the
		// last message comes first.
		slices.Reverse(ids)
	}
	s.lock()
	defer s.unlock()
	s.touch()
	now := s.server.now()
	s.expireLeases(now)
	for _, id := range ids {
		e := s.current(id)
		switch {
		case e == nil || e.state != leased:
			failed.add(id, invalidAckID)
		case deadline == 0:
			s.fail(e, now)
		default:
			s.timers.set(e, now.Add(deadline).UnixNano())
		}
	}
	s.schedule()
	return failed.reported(s), nil
}

// failures maps each ack id of a request that did not count to the reason. Only an exactly-once
// subscription reports failures.
type failures map[string]string

func (f *failures) add(id ackID, reason string) {
	if *f == nil {
		*f = failures{}
	}
	(*f)[id.String()] = reason
}

func (f failures) reported(s *subscription) failures {
	if !s.exactlyOnce {
		return nil
	}
	return f
}

// err returns the error of a call whose ids failed. The details of the error name each id. err
// returns nil if no id failed.
func (f failures) err() error {
	if len(f) == 0 {
		return nil
	}
	s := status.New(codes.InvalidArgument, "some acknowledgement ids have expired or are malformed")
	detailed, err := s.WithDetails(&errdetails.ErrorInfo{
		Reason: "EXACTLY_ONCE_ACKID_FAILURE", Domain: "pubsub.googleapis.com", Metadata: f,
	})
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

// of returns the ids that failed for this reason.
func (f failures) of(reason string) (ids []string) {
	for id, why := range f {
		if why == reason {
			ids = append(ids, id)
		}
	}
	return ids
}

// others returns the ids that did not fail.
func (f failures) others(ids []string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { _, failed := f[id]; return failed })
}

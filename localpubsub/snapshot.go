package localpubsub

import (
	"slices"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A snapshot lives for snapshotLife less the age of its oldest message. If it would live for less
// than shortestLife, it is not created (https://cloud.google.com/pubsub/docs/replay-overview).
const (
	snapshotLife    = 7 * 24 * time.Hour
	shortestLife    = time.Hour
	tooOldToCapture = "the oldest unacknowledged message is too old for a snapshot that lives an hour"
)

// A snapshot holds the messages that a subscription had not acknowledged when
// the snapshot was made, and all messages published after that.
type snapshot struct {
	server  *Server
	name    string
	created time.Time

	mu       sync.Mutex
	config   *pubsubpb.Snapshot
	topic    *topic // nil after the topic was deleted
	messages []*message
	alarm    *alarm
	ended    bool // the snapshot was deleted
}

// capture makes a snapshot of the subscription. It holds the topic's lock, so that no message is
// published meanwhile. So each message is in the subscription's backlog, or is added to the
// snapshot later.
func (s *subscription) capture(name string, labels map[string]string) (*snapshot, error) {
	s.lock()
	topic := s.topic
	s.unlock()
	if topic != nil {
		topic.mu.Lock()
		defer topic.mu.Unlock()
	}
	s.lock()
	defer s.unlock()
	if s.gone != nil {
		return nil, s.gone
	}
	if s.topic == nil {
		return nil, status.Errorf(codes.FailedPrecondition, "%s has lost its topic", s.name)
	}
	now := s.server.now()
	taken := &snapshot{server: s.server, name: name, created: now, topic: topic}
	oldest := now
	for e := s.log.first; e != nil; e = e.next {
		if e.state == acked {
			continue
		}
		if len(taken.messages) == 0 {
			oldest = time.Unix(0, e.at)
		}
		taken.messages = append(taken.messages, e.message)
	}
	expires := oldest.Add(snapshotLife)
	if expires.Sub(now) < shortestLife {
		return nil, status.Error(codes.FailedPrecondition, tooOldToCapture)
	}
	taken.config = &pubsubpb.Snapshot{Name: name, Topic: topic.name, Labels: labels, ExpireTime: timestamppb.New(expires)}
	taken.mu.Lock() // another call can find the snapshot from now on
	defer taken.mu.Unlock()
	if err := s.server.snapshots.put(name, taken); err != nil {
		return nil, err
	}
	for _, m := range taken.messages {
		m.keep()
	}
	topic.snapshots = append(topic.snapshots, taken)
	taken.expireAt(expires)
	return taken, nil
}

func (s *snapshot) expireAt(at time.Time) {
	s.alarm = s.server.clock.newAlarm(func() { _ = s.server.deleteSnapshot(s) }) // an error means that another call just deleted it
	s.alarm.set(at)
}

// add adds messages that were published after the snapshot was made.
func (s *snapshot) add(published []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range published {
		m.keep()
	}
	s.messages = append(s.messages, published...)
}

// content returns the messages of the snapshot, and the set of their ids. It returns an error if of is
// nil or is not the topic of the snapshot.
func (s *snapshot) content(of *topic) ([]*message, map[uint64]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of == nil || s.topic != of {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "%s is not of the topic of the subscription, or the topic was deleted", s.name)
	}
	ids := make(map[uint64]bool, len(s.messages))
	for _, m := range s.messages {
		ids[m.id] = true
	}
	return slices.Clone(s.messages), ids, nil
}

func (s *snapshot) describe() *pubsubpb.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	described := proto.CloneOf(s.config)
	if s.topic == nil {
		described.Topic = deletedTopic
	}
	return described
}

// loseTopic removes the reference to a deleted topic.
func (s *snapshot) loseTopic() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topic = nil
}

// end detaches the snapshot from its topic, stops its alarm, and drops its messages.
func (s *snapshot) end() {
	s.mu.Lock()
	topic := s.topic
	s.mu.Unlock()
	if topic != nil {
		topic.mu.Lock()
		topic.snapshots = slices.DeleteFunc(topic.snapshots, func(other *snapshot) bool { return other == s })
		topic.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.alarm.stop()
	for _, m := range s.messages {
		m.drop()
	}
	s.messages = nil
}

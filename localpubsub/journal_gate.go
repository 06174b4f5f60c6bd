package localpubsub

import (
	"context"
	"path"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc"
)

// passage is the way in which a call passes the journal's gate.
type passage int

const (
	alone  passage = iota // changes configuration: no other change runs meanwhile
	shared                // changes messages, and appends its records itself
	free                  // changes nothing that the journal keeps
)

// passageOf covers all methods of the services. A pull is free: it may wait for
// long, and leases are not kept.
func passageOf(method string) passage {
	switch method {
	case "Publish", "Acknowledge", "ModifyAckDeadline":
		return shared
	case "Pull", "ModifyPushConfig":
		return free
	}
	for _, reads := range []string{"Get", "List", "Test", "Validate"} {
		if strings.HasPrefix(method, reads) {
			return free
		}
	}
	return alone
}

// journaled handles a call and returns its answer when the journal holds its
// changes.
func (s *Server) journaled(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (answer any, err error) {
	call := func() error {
		answer, err = handle(ctx, req)
		return err
	}
	switch passage := passageOf(path.Base(info.FullMethod)); {
	case s.journal == nil || passage == free:
		return handle(ctx, req)
	case passage == shared:
		err = s.changing(call)
	default:
		err = s.changingAlone(func() error {
			if err := call(); err != nil {
				return err
			}
			s.note(req, answer)
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// note appends the result of a configuration call.
func (s *Server) note(req, answer any) {
	switch r := req.(type) {
	case *pubsubpb.DeleteSubscriptionRequest, *pubsubpb.DeleteSnapshotRequest:
		// Expiry deletes these resources too, so the delete itself appends the
		// record.
	case *pubsubpb.DeleteTopicRequest:
		s.journal.deleted(r.GetTopic())
	case *pubsubpb.DeleteSchemaRequest:
		s.journal.deleted(r.GetName())
		for _, t := range s.topics.all() {
			s.journal.append(t.record())
		}
	case *pubsubpb.DetachSubscriptionRequest:
		s.noteResource(r.GetSubscription())
	case *pubsubpb.SeekRequest:
		s.noteResource(r.GetSubscription())
	case *iampb.SetIamPolicyRequest:
		s.journal.append(s.policies.record(r.GetResource()))
	default:
		if changed, ok := answer.(interface{ GetName() string }); ok {
			s.noteResource(changed.GetName())
		}
	}
}

func (s *Server) noteResource(name string) {
	if t := s.topic(name); t != nil {
		s.journal.append(t.record())
	}
	if sub, err := s.subscription(name); err == nil {
		s.journal.append(sub.record())
	}
	if snap, err := s.snapshot(name); err == nil {
		s.journal.append(snap.record())
	}
	if all := s.schemas.history(name); all != nil {
		s.journal.append(all.record(name))
	}
}

// changing runs a change of messages, and returns when the journal holds it.
func (s *Server) changing(do func() error) error {
	if s.journal == nil {
		return do()
	}
	s.journal.gate.RLock()
	err := do()
	s.journal.gate.RUnlock()
	return s.settled(err)
}

// changingAlone runs do while no other change runs.
func (s *Server) changingAlone(do func() error) error {
	if s.journal == nil {
		return do()
	}
	s.journal.gate.Lock()
	err := do()
	s.journal.gate.Unlock()
	return s.settled(err)
}

// settled waits for the journal. A failure of the journal takes precedence over
// err.
func (s *Server) settled(err error) error {
	if broken := s.journal.sync(); broken != nil {
		return broken
	}
	if s.journal.large() {
		s.compact()
	}
	return err
}

// compact rewrites the journal, on the goroutine of the call that made it too
// large. If the rewrite fails, the old file grows on, and a later call tries
// again.
func (s *Server) compact() {
	s.journal.gate.Lock()
	defer s.journal.gate.Unlock()
	if !s.journal.large() {
		return // another call has just done it
	}
	if err := s.journal.rewrite(s.dump); err != nil {
		s.journal.postpone()
	}
}

// newAlarm makes an alarm that changes messages or resources.
func (s *Server) newAlarm(ring func()) *alarm {
	return s.clock.newAlarm(func() {
		_ = s.changing(func() error { // alarms ring even if the journal has failed
			ring()
			return nil
		})
	})
}

package localpubsub

import (
	"bytes"
	"fmt"
	"strconv"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
)

// A replay is the state that results from a journal's records, without leases
// and alarms.
type replay struct {
	store                *store
	run, message, number uint64 // the last of each
	messages             map[uint64]*message
	topics               map[string]*pastTopic
	subscriptions        map[string]*pastSubscription
	snapshots            map[string]*pastSnapshot
	schemas              map[string]*record
	policies             map[string]*iampb.Policy
}

type pastTopic struct {
	config   *pubsubpb.Topic
	last     int64
	retained backlog
}

type pastSubscription struct {
	config           *pubsubpb.Subscription
	number           uint64
	filter           *filter
	orphan, detached bool
	backlog          backlog
}

type pastSnapshot struct {
	config   *pubsubpb.Snapshot
	orphan   bool
	messages []*message
}

func newReplay(to *store) *replay {
	r := &replay{store: to}
	r.reset()
	return r
}

func (r *replay) reset() {
	r.messages = make(map[uint64]*message)
	r.topics, r.subscriptions = make(map[string]*pastTopic), make(map[string]*pastSubscription)
	r.snapshots, r.schemas = make(map[string]*pastSnapshot), make(map[string]*record)
	r.policies = make(map[string]*iampb.Policy)
}

// apply applies the next record of the file.
func (r *replay) apply(b []byte) error {
	next, err := parseRecord(b)
	if err != nil {
		return err
	}
	switch next.kind {
	case recordRun:
		if len(next.ids) != 2 {
			return errFrame
		}
		r.run, r.message, r.number = next.number, next.ids[0], next.ids[1]
	case recordMessages:
		_, _, err = r.read(next.raws)
	case recordTopic:
		err = r.topic(next)
	case recordSubscription:
		err = r.subscription(next)
	case recordSnapshot:
		err = r.snapshot(next)
	case recordSchema:
		r.schemas[next.name] = next
	case recordPolicy:
		policy := new(iampb.Policy)
		r.policies[next.name], err = policy, proto.Unmarshal(next.body, policy)
	case recordDeleted:
		r.delete(next.name)
	case recordPublished:
		err = r.publish(next)
	case recordAcked:
		r.acknowledge(next)
	case recordForgotten:
		r.forget(next)
	case recordReset:
		r.reset()
	default:
		err = fmt.Errorf("a record of kind %d, which a later version may have written", next.kind)
	}
	return err
}

// read parses messages, with the attributes of each.
func (r *replay) read(raws [][]byte) (all []*message, attributes []map[string]string, err error) {
	for _, raw := range raws {
		m := &message{raw: bytes.Clone(raw), in: r.store}
		decoded, err := m.decode()
		if err != nil {
			return nil, nil, err
		}
		if m.id, err = strconv.ParseUint(decoded.GetMessageId(), 10, 64); err != nil {
			return nil, nil, err
		}
		m.key, m.at = decoded.GetOrderingKey(), decoded.GetPublishTime().AsTime().UnixNano()
		r.messages[m.id], r.message = m, max(r.message, m.id)
		all, attributes = append(all, m), append(attributes, decoded.GetAttributes())
	}
	return all, attributes, nil
}

// find returns the messages with these ids.
func (r *replay) find(name string, ids []uint64) ([]*message, error) {
	all := make([]*message, len(ids))
	for i, id := range ids {
		if all[i] = r.messages[id]; all[i] == nil {
			return nil, fmt.Errorf("%s has message %d, which is not in the file", name, id)
		}
	}
	return all, nil
}

func (r *replay) topic(next *record) error {
	t := &pastTopic{config: new(pubsubpb.Topic), last: next.at}
	r.topics[next.name] = t
	retained, err := r.find(next.name, next.ids)
	t.retained.push(retained...)
	if err != nil {
		return err
	}
	return proto.Unmarshal(next.body, t.config)
}

func (r *replay) subscription(next *record) error {
	s := &pastSubscription{config: new(pubsubpb.Subscription), number: next.number, orphan: next.orphan, detached: next.detached}
	r.subscriptions[next.name], r.number = s, max(r.number, s.number)
	if err := proto.Unmarshal(next.body, s.config); err != nil {
		return err
	}
	waiting, err := r.find(next.name, next.ids)
	if err != nil {
		return err
	}
	done, err := r.find(next.name, next.acked)
	if err != nil {
		return err
	}
	s.backlog.push(append(waiting, done...)...)
	s.backlog.sort()
	s.backlog.acknowledge(next.acked, true)
	s.filter, err = parseFilter(s.config.GetFilter())
	return err
}

func (r *replay) snapshot(next *record) (err error) {
	s := &pastSnapshot{config: new(pubsubpb.Snapshot), orphan: next.orphan}
	r.snapshots[next.name] = s
	if s.messages, err = r.find(next.name, next.ids); err != nil {
		return err
	}
	return proto.Unmarshal(next.body, s.config)
}

// delete removes a resource. A subscription or snapshot of a deleted topic
// stays without a topic, even if another topic gets the same name.
func (r *replay) delete(name string) {
	if r.topics[name] != nil {
		for _, s := range r.subscriptions {
			s.orphan = s.orphan || s.config.GetTopic() == name
		}
		for _, s := range r.snapshots {
			s.orphan = s.orphan || s.config.GetTopic() == name
		}
	}
	delete(r.topics, name)
	delete(r.subscriptions, name)
	delete(r.snapshots, name)
	delete(r.schemas, name)
	delete(r.policies, name)
}

func (r *replay) publish(next *record) error {
	t := r.topics[next.name]
	if t == nil {
		return fmt.Errorf("messages for %s, which is not in the file", next.name)
	}
	all, attributes, err := r.read(next.raws)
	if err != nil {
		return err
	}
	if t.config.GetMessageRetentionDuration().AsDuration() > 0 {
		t.retained.push(all...)
	}
	for _, m := range all {
		t.last = max(t.last, m.at)
	}
	for _, s := range r.subscriptions {
		if s.config.GetTopic() != next.name || s.orphan || s.detached {
			continue
		}
		for i, m := range all {
			if s.filter.matches(attributes[i]) {
				s.backlog.push(m)
			}
		}
	}
	for _, s := range r.snapshots {
		if s.config.GetTopic() == next.name && !s.orphan {
			s.messages = append(s.messages, all...)
		}
	}
	return nil
}

// acknowledge and forget accept records of a subscription that has just
// expired.
func (r *replay) acknowledge(next *record) {
	if s := r.subscriptions[next.name]; s != nil {
		s.backlog.acknowledge(next.ids, s.config.GetRetainAckedMessages())
	}
}

func (r *replay) forget(next *record) {
	if t := r.topics[next.name]; t != nil {
		t.retained.forget(next.at)
	}
	if s := r.subscriptions[next.name]; s != nil {
		s.backlog.forget(next.at)
	}
}

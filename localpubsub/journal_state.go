package localpubsub

import (
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// dumpBatch is the approximate size in bytes of the messages in one record of a
// dump.
const dumpBatch = 1 << 20

// A dump writes the whole state as records. Each message is written once,
// before the first resource that contains it.
type dump struct {
	write      func(*record) error
	generation uint32
	batch      record
	bytes      int
}

// dump is called while no other call is inside the journal's gate.
func (s *Server) dump(write func(*record) error) error {
	s.journal.generation++
	d := &dump{write: write, generation: s.journal.generation, batch: record{kind: recordMessages}}
	err := write(&record{kind: recordRun, number: s.run, ids: []uint64{s.message.Load(), s.number.Load()}})
	for _, t := range s.topics.all() {
		err = d.put(err, t.record(), t.messages())
	}
	for _, sub := range s.subscriptions.all() {
		err = d.put(err, sub.record(), sub.messages())
	}
	for _, snap := range s.snapshots.all() {
		kept, _ := snap.content()
		err = d.put(err, snap.record(), kept)
	}
	for _, r := range append(s.schemas.records(), s.policies.records()...) {
		err = d.put(err, r, nil)
	}
	return err
}

// put writes a resource after its messages. After an error it does nothing.
func (d *dump) put(err error, r *record, kept []*message) error {
	for _, m := range kept {
		if err != nil {
			return err
		}
		if m.dumped == d.generation {
			continue
		}
		m.dumped = d.generation
		d.batch.raws = append(d.batch.raws, m.raw)
		if d.bytes += len(m.raw); d.bytes >= dumpBatch {
			err = d.flush()
		}
	}
	if err == nil {
		err = d.flush()
	}
	if err != nil {
		return err
	}
	return d.write(r)
}

func (d *dump) flush() error {
	if len(d.batch.raws) == 0 {
		return nil
	}
	err := d.write(&d.batch)
	clear(d.batch.raws)
	d.batch.raws, d.bytes = d.batch.raws[:0], 0
	return err
}

func (t *topic) record() *record {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &record{kind: recordTopic, name: t.name, body: marshal(t.config), at: t.last}
	for i := range t.retained.len() {
		r.ids = append(r.ids, t.retained.at(i).id)
	}
	return r
}

func (t *topic) messages() []*message {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since(0)
}

func (s *subscription) record() *record {
	s.lock()
	defer s.unlock()
	r := &record{
		kind: recordSubscription, name: s.name, body: marshal(s.config), number: s.number,
		orphan: s.topic == nil, detached: s.gone != nil,
	}
	for e := s.log.first; e != nil; e = e.next {
		switch {
		case e.state != acked:
			r.ids = append(r.ids, e.id)
		case s.retainAcked:
			r.acked = append(r.acked, e.id)
		}
	}
	return r
}

func (s *subscription) messages() (all []*message) {
	s.lock()
	defer s.unlock()
	for e := s.log.first; e != nil; e = e.next {
		all = append(all, e.message)
	}
	return all
}

func (s *snapshot) record() *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &record{kind: recordSnapshot, name: s.name, body: marshal(s.config), orphan: s.topic == nil}
	for _, m := range s.messages {
		r.ids = append(r.ids, m.id)
	}
	return r
}

func (h history) record(name string) *record {
	r := &record{kind: recordSchema, name: name}
	for _, revision := range h {
		kept := &pubsubpb.Schema{RevisionId: revision.id}
		if revision.root != nil {
			kept.Definition, kept.RevisionCreateTime = revision.definition, timestamppb.New(revision.at)
		}
		r.raws, r.ids = append(r.raws, marshal(kept)), append(r.ids, uint64(revision.number))
	}
	return r
}

func (s *schemas) records() (all []*record) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, h := range s.byName {
		all = append(all, h.record(name))
	}
	return all
}

func (p *policies) record(resource string) *record {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &record{kind: recordPolicy, name: resource, body: marshal(p.current(resource))}
}

func (p *policies) records() (all []*record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for resource, policy := range p.set {
		all = append(all, &record{kind: recordPolicy, name: resource, body: marshal(policy)})
	}
	return all
}

// The records of changes that no configuration call makes.

func (j *journal) deleted(name string) { j.append(&record{kind: recordDeleted, name: name}) }

func (j *journal) published(topic string, messages []*message) {
	if j == nil {
		return
	}
	r := &record{kind: recordPublished, name: topic, raws: make([][]byte, len(messages))}
	for i, m := range messages {
		r.raws[i] = m.raw
	}
	j.append(r)
}

func (j *journal) acknowledged(subscription string, ids []uint64) {
	if j != nil && len(ids) > 0 {
		j.append(&record{kind: recordAcked, name: subscription, ids: ids})
	}
}

func (j *journal) forgot(name string, until int64) {
	j.append(&record{kind: recordForgotten, name: name, at: until})
}

// marshal writes a message deterministically. It cannot fail: the message was
// read from a request.
func marshal(m proto.Message) []byte {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return b
}

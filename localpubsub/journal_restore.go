package localpubsub

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
)

// load restores the state from the file of the options, if there is one, and
// rewrites the file. An error names the file, which then stays as it was.
func (s *Server) load() error {
	if s.options.File == "" {
		return nil
	}
	file, err := openFile(s.options.File)
	if err != nil {
		return err
	}
	past := newReplay(&s.store)
	if err := readFrames(file, past.apply); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", s.options.File, err), file.Close())
	}
	if err := s.takeUp(file, past); err != nil {
		s.forget(errClosed) // stops its alarms
		return fmt.Errorf("%s: %w", s.options.File, err)
	}
	return nil
}

// takeUp holds the gate, because alarms of restored resources may ring before
// the restore is complete.
func (s *Server) takeUp(file *os.File, past *replay) error {
	s.journal = newJournal(file, &s.store)
	s.journal.gate.Lock()
	defer s.journal.gate.Unlock()
	err := s.restore(past)
	if err == nil {
		err = s.journal.rewrite(s.dump)
	}
	if err != nil {
		err = errors.Join(err, s.journal.close())
	}
	return err
}

func (s *Server) restore(past *replay) error {
	s.run = past.run + 1
	s.number.Store(past.number)
	s.message.Store(max(s.message.Load(), past.message))
	for name, t := range past.topics {
		if err := s.restoreTopic(name, t); err != nil {
			return err
		}
	}
	for name, sub := range past.subscriptions {
		if err := s.restoreSubscription(name, sub); err != nil {
			return err
		}
	}
	for name, snap := range past.snapshots {
		if err := s.restoreSnapshot(name, snap); err != nil {
			return err
		}
	}
	for name, kept := range past.schemas {
		if err := s.schemas.restore(name, kept); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	s.policies.restore(past)
	return nil
}

func (s *Server) restoreTopic(name string, past *pastTopic) error {
	t := newTopic(s, past.config)
	if err := s.topics.put(name, t); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = past.last
	for _, k := range past.retained.items {
		k.keep()
		t.retained.push(k.message)
	}
	t.schedule()
	return nil
}

// restoreSubscription makes every unacknowledged message ready: leases end with
// the process. A message that was acknowledged behind an unacknowledged one is
// not delivered again. Ack ids from before are valid for no later delivery,
// because serials restart above all earlier ones.
func (s *Server) restoreSubscription(name string, past *pastSubscription) error {
	var to *topic
	if !past.orphan {
		to = s.topic(past.config.GetTopic())
	}
	restored := newSubscription(s, to, past.config, past.filter)
	restored.number, restored.serial = past.number, s.run<<32
	if err := s.subscriptions.put(name, restored); err != nil {
		return err
	}
	if past.detached {
		restored.gone = detached(name)
		restored.alarm.stop()
		return nil
	}
	if to != nil {
		to.attach(restored)
	}
	restored.lock()
	defer restored.unlock()
	for _, k := range past.backlog.items {
		switch {
		case k.message == nil:
		case k.acked:
			k.keep()
			restored.log.push(&entry{message: k.message, timer: -1, state: acked})
		default:
			restored.add(k.message)
		}
	}
	restored.schedule()
	return nil
}

func (s *Server) restoreSnapshot(name string, past *pastSnapshot) error {
	restored := &snapshot{server: s, name: name, config: past.config, messages: past.messages}
	if err := s.snapshots.put(name, restored); err != nil {
		return err
	}
	for _, m := range restored.messages {
		m.keep()
	}
	if !past.orphan {
		restored.topic = s.topic(past.config.GetTopic())
	}
	if t := restored.topic; t != nil {
		t.mu.Lock()
		t.snapshots = append(t.snapshots, restored)
		t.mu.Unlock()
	}
	restored.expireAt(past.config.GetExpireTime().AsTime())
	return nil
}

// restore compiles the revisions again.
func (s *schemas) restore(name string, kept *record) error {
	if len(kept.ids) != len(kept.raws) {
		return errFrame
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var all history
	for i, raw := range kept.raws {
		past := new(pubsubpb.Schema)
		if err := proto.Unmarshal(raw, past); err != nil {
			return err
		}
		if past.GetDefinition() == "" {
			all = append(all, &revision{id: past.GetRevisionId(), number: int(kept.ids[i])})
			continue
		}
		root, err := compile(context.Background(), past.GetDefinition())
		if err != nil {
			return err
		}
		restored := newRevision(past.GetDefinition(), root).
			named(name, past.GetRevisionId(), int(kept.ids[i]), past.GetRevisionCreateTime().AsTime().In(time.UTC))
		all = append(all, restored)
		s.stored += restored.cost()
	}
	s.byName[name] = all
	parent, _, _ := strings.Cut(name, "/schemas/")
	s.projects[parent]++
	return nil
}

func (p *policies) restore(past *replay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.Copy(p.set, past.policies)
}

package localpubsub

import (
	"fmt"
	"slices"
	"time"
)

// Records is what the server's file would hold if it were written now, but for
// what differs from run to run. Each message stands for itself. What limits count
// is there too.
func (s *Server) Records() ([]string, error) {
	var all []string
	err := s.changingAlone(func() error {
		return s.dump(func(r *record) error {
			switch r.kind {
			case recordRun:
			case recordMessages:
				for _, raw := range r.raws {
					all = append(all, fmt.Sprintf("message %q", raw))
				}
			default:
				all = append(all, fmt.Sprintf("%d %s %q %d %d %t %t %d %d %q",
					r.kind, r.name, r.body, r.number, r.at, r.orphan, r.detached, r.ids, r.acked, r.raws))
			}
			return nil
		})
	})
	all = append(all, fmt.Sprintf("counted: %d bytes of messages, %d of schemas, by project %v",
		s.store.bytes.Load(), s.schemas.stored, s.schemas.projects))
	slices.Sort(all)
	return all, err
}

// Passages says of each method that the server has whether it changes messages,
// configuration or nothing.
func (s *Server) Passages() map[string]string {
	words := map[passage]string{alone: "configuration", shared: "messages", free: "nothing"}
	found := make(map[string]string)
	for _, service := range s.grpc.GetServiceInfo() {
		for _, method := range service.Methods {
			if !method.IsClientStream && !method.IsServerStream {
				found[method.Name] = words[passageOf(method.Name)]
			}
		}
	}
	return found
}

// SetSlack lets the file be written anew sooner than every 64 MiB, and says how
// often it was.
func (s *Server) SetSlack(bytes int64) (generations func() uint32) {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	s.journal.slack = bytes
	return func() uint32 {
		s.journal.gate.Lock()
		defer s.journal.gate.Unlock()
		return s.journal.generation
	}
}

// BreakJournal makes all writes to the file fail from now on.
func (s *Server) BreakJournal() {
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	_ = s.journal.file.Close()
}

// Restored is the state that a server would begin with on a file, without the
// time that it takes to force a new one to the disk.
func Restored(path string) ([]string, error) {
	s := newServer(Options{File: path, Clock: NewStillClock(time.Time{})})
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	past := newReplay(&s.store)
	if err := readFrames(file, past.apply); err != nil {
		return nil, err
	}
	s.journal = newJournal(file, &s.store)
	if err := s.restore(past); err != nil {
		return nil, err
	}
	return s.Records()
}

// SkipMessageIDs leaves ids out.
func (s *Server) SkipMessageIDs(n uint64) { s.message.Add(n) }

package localpubsub

import (
	"fmt"
	"slices"
	"time"
)

// Records returns the content that the server's file would have if it were
// written now, without the parts that differ from run to run. Each message
// stands for itself. The counters of the limits are included.
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

// Passages maps each method of the server to "messages", "configuration" or
// "nothing": the state that a call of it changes.
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

// SetSlack sets how much the file may grow before it is rewritten, 64 MiB by
// default. generations returns the number of rewrites.
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

// Restored returns the state that a server would start with from a file. It
// skips the time that a real start needs to force a new file to the disk.
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

// SkipMessageIDs skips n message ids.
func (s *Server) SkipMessageIDs(n uint64) { s.message.Add(n) }

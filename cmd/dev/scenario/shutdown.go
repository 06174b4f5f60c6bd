package scenario

import (
	"strings"
	"sync"
	"time"
)

// shutdown counts the answered requests to a service that its end concerns: those that were
// under way when it was asked to end, and those that came later. A nil shutdown counts none.
type shutdown struct {
	url string // base URL of the service

	mu           sync.Mutex
	asked        time.Time
	under, later int
}

// begin is called when the service is about to be asked to end.
func (s *shutdown) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Now()
}

// answered notes the end of a request that had begun at a time.
func (s *shutdown) answered(url string, begun time.Time) {
	if s == nil || !strings.HasPrefix(url, s.url) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.asked.IsZero():
	case begun.Before(s.asked):
		s.under++
	default:
		s.later++
	}
}

func (s *shutdown) requests() (under, later int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under, s.later
}

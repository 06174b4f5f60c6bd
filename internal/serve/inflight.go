package serve

import (
	"net/http"
	"slices"
	"sync"
)

// inFlight knows the requests that have been accepted and not yet answered, so
// that a drain can name what it cuts off.
type inFlight struct {
	mu       sync.Mutex
	requests map[*http.Request]struct{}
}

// enter returns the function that ends r.
func (f *inFlight) enter(r *http.Request) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests == nil {
		f.requests = map[*http.Request]struct{}{}
	}
	f.requests[r] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.requests, r)
	}
}

func (f *inFlight) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for r := range f.requests {
		names = append(names, r.Method+" "+r.URL.Path)
	}
	slices.Sort(names)
	return names
}

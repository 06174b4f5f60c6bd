package serve

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/go-chi/chi/v5"
)

// inFlight has the requests that have been accepted and not yet answered, so that a
// drain can name those that it cuts off.
type inFlight struct {
	mu       sync.Mutex
	requests map[*http.Request]struct{}
}

// enter registers r, and returns the function that removes it.
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

// names are the routes of the requests in flight, each once with its number, in a form
// that is allowed in log lines.
func (f *inFlight) names(routes chi.Routes) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[string]int{}
	for r := range f.requests {
		name := method(r) + " " + route(routes, r)
		if isGRPC(r) {
			name = "gRPC " + printable(r.URL.Path)
		}
		counts[name]++
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n > 1 {
			name = fmt.Sprintf("%s (%d)", name, n)
		}
		names = append(names, name)
	}
	return names
}

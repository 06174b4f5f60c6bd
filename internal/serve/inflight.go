package serve

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/go-chi/chi/v5"
)

// inFlight has the requests that are accepted and not yet answered, so that a drain can name the
// requests that it cuts off.
type inFlight struct{ requests sync.Map } // by *http.Request

// enter registers r, and returns the function that removes it.
func (f *inFlight) enter(r *http.Request) (leave func()) {
	f.requests.Store(r, nil)
	return func() { f.requests.Delete(r) }
}

// names returns the routes of the requests in flight, in a form that is allowed in log lines.
// Each route occurs once, with the number of its requests if there are several.
func (f *inFlight) names(routes chi.Routes) (names []string) {
	counts := map[string]int{}
	for key := range f.requests.Range {
		r := key.(*http.Request) //nolint:forcetypeassert // enter stores no others
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

package attack

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

const (
	// bodySize is as much as passes, headerSize nearly as much as a server reads.
	bodySize   = 256 << 10
	headerSize = 60 << 10
)

// parameter stands for each parameter of a route.
const parameter = "00000000-0000-4000-8000-000000000000"

// REST sends each route requests that are full of members, elements, query
// parameters and header values, and expects that each is answered with a client's
// fault, or without one, and allocates no more than most bytes.
func REST(t *testing.T, routes chi.Routes, url string, most uint64) {
	t.Helper()
	seen := 0
	err := chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !strings.HasPrefix(route, "/v1/") {
			return nil
		}
		seen++
		for what, prepare := range requests() {
			judge(t, fmt.Sprintf("%s %s with %s", method, route, what), most, func() {
				send(t, prepare(method, url+concrete(route)))
			})
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("%d routes were attacked, %v", seen, err)
	}
}

// requests are by what they are full of.
func requests() map[string]func(method, url string) *http.Request {
	with := func(body string) func(method, url string) *http.Request {
		return func(method, url string) *http.Request {
			r := must(http.NewRequest(method, url, strings.NewReader(body)))
			r.Header.Set("Content-Type", "application/json")
			return r
		}
	}
	header := func(name, value string) func(method, url string) *http.Request {
		return func(method, url string) *http.Request {
			r := with("{}")(method, url)
			r.Header.Set(name, strings.Repeat(value, headerSize/len(value)))
			return r
		}
	}
	return map[string]func(method, url string) *http.Request{
		"unknown members":    with(list("{", func(i int) string { return fmt.Sprintf(`"%x":0`, i) }, "}")),
		"one unknown member": with(list("{", func(int) string { return `"x":0` }, "}")),
		"one known member":   with(list("{", func(int) string { return `"title":0` }, "}")),
		"an unknown list":    with(`{"x":` + list("[", func(int) string { return "0" }, "]") + `}`),
		"a list for a title": with(`{"title":` + list("[", func(int) string { return "0" }, "]") + `}`),
		"nested lists":       with(strings.Repeat("[", bodySize-1)),
		"escapes in a title": with(`{"title":"` + strings.Repeat(`\u00e9`, bodySize/8) + `"}`),
		"query parameters": func(method, url string) *http.Request {
			return with("{}")(method, url+"?"+query(func(i int) string { return fmt.Sprintf("%x", i) }))
		},
		"one query parameter": func(method, url string) *http.Request {
			return with("{}")(method, url+"?"+query(func(int) string { return "q" }))
		},
		"preferences":   header("Prefer", "a,"),
		"conditions":    header("If-Match", `"1",`),
		"a token":       header("Consistency-Token", "A"),
		"a key":         header("Idempotency-Key", "k"),
		"a trace state": header("Tracestate", "a=b,"),
	}
}

// list is as much JSON as a body may hold, and what encloses it.
func list(begin string, element func(int) string, end string) string {
	var b strings.Builder
	b.WriteString(begin + element(0))
	for i := 1; b.Len() < bodySize-64; i++ {
		b.WriteString("," + element(i))
	}
	return b.String() + end
}

func query(name func(int) string) string {
	var b strings.Builder
	for i := 0; b.Len() < headerSize; i++ {
		b.WriteString(name(i) + "&")
	}
	return b.String()
}

func concrete(route string) string {
	parts := strings.Split(route, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			parts[i] = parameter
		}
	}
	return strings.Join(parts, "/")
}

func send(t *testing.T, r *http.Request) {
	t.Helper()
	res, err := http.DefaultClient.Do(r.WithContext(t.Context()))
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err != nil || n > 16<<10 || res.StatusCode >= 500 {
		t.Errorf("%s %s: %d with %d bytes, %v", r.Method, r.URL.Path, res.StatusCode, n, err)
	}
}

func must(r *http.Request, err error) *http.Request {
	if err != nil {
		panic(err)
	}
	return r
}

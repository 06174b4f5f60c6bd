package attack

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
)

const (
	// bodySize is the largest body that a service accepts, in bytes.
	bodySize = 256 << 10
	// headerSize is nearly the largest header that a server reads, in bytes.
	headerSize = 60 << 10
)

// Placeholder stands for an id, in routes and messages.
const Placeholder = "00000000-0000-4000-8000-000000000000"

// REST sends requests to each route under /v1/. Each request is full of members, elements, query
// parameters or header values. The test fails if a request allocates more bytes than the limit
// most, if the answer has more than 16 KiB, or if its status is 500 or above.
func REST(t *testing.T, routes chi.Routes, url string, most uint64) {
	t.Helper()
	seen := 0
	err := chi.Walk(routes, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if !strings.HasPrefix(route, "/v1/") {
			return nil
		}
		seen++
		for what, r := range requests() {
			judge(t, fmt.Sprintf("%s %s with %s", method, route, what), most, func() { r.send(t, method, url+concrete(route)) })
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("%d routes were attacked, %v", seen, err)
	}
}

// request has the parts of a request that are the same for every route.
type request struct{ body, query, header, value string }

// requests returns the requests. Each key says how the request is filled.
func requests() map[string]request {
	with := func(header, value string) request {
		return request{body: "{}", header: header, value: strings.Repeat(value, headerSize/len(value))}
	}
	zero := func(int) string { return "0" }
	return map[string]request{
		"unknown members":     {body: list("{", func(i int) string { return fmt.Sprintf(`"%x":0`, i) }, "}")},
		"one unknown member":  {body: list("{", func(int) string { return `"x":0` }, "}")},
		"one known member":    {body: list("{", func(int) string { return `"title":0` }, "}")},
		"an unknown list":     {body: `{"x":` + list("[", zero, "]") + `}`},
		"a list for a title":  {body: `{"title":` + list("[", zero, "]") + `}`},
		"nested lists":        {body: strings.Repeat("[", bodySize-1)},
		"escapes in a title":  {body: `{"title":"` + strings.Repeat(`\u00e9`, bodySize/8) + `"}`},
		"query parameters":    {body: "{}", query: query(func(i int) string { return strconv.FormatInt(int64(i), 16) })},
		"one query parameter": {body: "{}", query: query(func(int) string { return "q" })},
		"preferences":         with("Prefer", "a,"),
		"conditions":          with("If-Match", `"1",`),
		"a token":             with("Consistency-Token", "A"),
		"a key":               with("Idempotency-Key", "k"),
		"a trace state":       with("Tracestate", "a=b,"),
	}
}

func (r request) send(t *testing.T, method, url string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+"?"+r.query, strings.NewReader(r.body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	if r.header != "" {
		req.Header.Set(r.header, r.value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err != nil || n > 16<<10 || res.StatusCode >= http.StatusInternalServerError {
		t.Errorf("%s %s: %d with %d bytes, %v", method, req.URL.Path, res.StatusCode, n, err)
	}
}

// list returns begin, many JSON elements, and end. The result is nearly as large as a body may be.
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

var inRoute = regexp.MustCompile(`\{[^/]*`)

func concrete(route string) string { return inRoute.ReplaceAllString(route, Placeholder) }

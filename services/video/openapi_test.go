package video

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/services/video/aggregate"
)

// document is the part of openapi.json that the tests use.
type document struct {
	Paths      map[string]map[string]json.RawMessage
	Components struct{ Responses map[string]response }
}

type operation struct {
	Responses map[string]response
}

type response struct {
	Ref     string `json:"$ref"`
	Headers map[string]json.RawMessage
	Content map[string]json.RawMessage
}

// onAll are the headers that every answer has, or that net/http adds. The document leaves them out.
var onAll = []string{
	"Cache-Control", "Connection", "Content-Length", "Content-Security-Policy", "Content-Type", "Date", "Vary", "X-Content-Type-Options",
	"X-Frame-Options",
}

func TestDocumentHasTheRoutersRoutes(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	guard := serve.NewGuard(access, auth.Open(), serve.Options{})
	router := serve.NewRouter(log, serve.NewHealth(log), guard)
	services{}.register(router, serve.NewGRPC(log, guard), log)
	var routes, documented []string
	err := chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routes = append(routes, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	for path, operations := range doc.Paths {
		for method := range operations {
			if method != "parameters" {
				documented = append(documented, strings.ToUpper(method)+" "+path)
			}
		}
	}
	slices.Sort(routes)
	slices.Sort(documented)
	if diff := cmp.Diff(routes, documented); diff != "" {
		t.Errorf("-router +openapi.json:\n%s", diff)
	}
}

// contract checks requests and answers against openapi.json.
type contract struct {
	*testing.T
	compiler *jsonschema.Compiler
	doc      document
}

func newContract(t *testing.T) contract {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		t.Fatal(err)
	}
	c := contract{T: t, compiler: jsonschema.NewCompiler()}
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource("openapi.json", parsed); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(openAPI, &c.doc); err != nil {
		t.Fatal(err)
	}
	return c
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// schema compiles the schema at the path of members.
func (c contract) schema(members ...string) *jsonschema.Schema {
	c.Helper()
	location := "openapi.json#"
	for _, m := range members {
		location += "/" + pointer.Replace(m)
	}
	s, err := c.compiler.Compile(location)
	if err != nil {
		c.Fatal(err)
	}
	return s
}

// headers checks that the document names the headers of an answer.
func (c contract) headers(of response, got http.Header, what string) {
	c.Helper()
	if of.Ref != "" {
		of = c.doc.Components.Responses[strings.TrimPrefix(of.Ref, "#/components/responses/")]
	}
	known := slices.Clone(onAll)
	for name := range of.Headers {
		known = append(known, http.CanonicalHeaderKey(name))
	}
	for name := range got {
		if !slices.Contains(known, name) {
			c.Errorf("%s: the header %s is not documented", what, name)
		}
	}
}

// answer checks that r is a documented response of route.
func (c contract) answer(method, route, status string, r reply) {
	c.Helper()
	method = strings.ToLower(method)
	var op operation
	if err := json.Unmarshal(c.doc.Paths[route][method], &op); err != nil {
		c.Fatal(err)
	}
	response, documented := op.Responses[status]
	if !documented {
		c.Errorf("%s %s: the document does not know status %s", method, route, status)
		return
	}
	c.headers(response, r.Header, method+" "+route+" "+status)
	at := []string{"paths", route, method, "responses", status, "content", "application/json", "schema"}
	if len(response.Content) == 0 { // a reference, which only problems are
		at = []string{"components", "schemas", "Problem"}
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.Raw))
	if err != nil {
		c.Fatal(err)
	}
	if err := c.schema(at...).Validate(value); err != nil {
		c.Errorf("%s %s answers %s, but: %v", method, route, r.Raw, err)
	}
	for name := range response.Headers {
		if r.Header.Get(name) == "" && name != "Idempotency-Replayed" {
			c.Errorf("%s %s %s: the header %s is missing", method, route, status, name)
		}
	}
}

func TestAnswersMatchTheDocument(t *testing.T) {
	t.Parallel()
	a, c := newAPI(t), newContract(t)
	v, gone := a.create(), a.create()
	a.call("DELETE", path(gone), nil)
	const collection, one = "/v1/videos", "/v1/videos/{id}"
	engagement, user, other := "/v1/users/{user_id}/engagements/{video_id}", uuid.New(), a.create()
	unknown := "/v1/videos/" + uuid.NewString()
	a.call("POST", collection, draft(nil), "Idempotency-Key", "k")
	tests := []struct {
		method, route, path, status string
		body                        any
		headers                     []string
	}{
		{"POST", collection, collection, "201", draft(nil), nil},
		{"POST", collection, collection, "400", `{}`, nil},
		{"POST", collection, collection, "413", strings.Repeat(" ", 1<<20), nil},
		{"POST", collection, collection, "415", "x", []string{"Content-Type", "text/plain"}},
		{"POST", collection, collection, "415", `{}`, []string{"Content-Encoding", "gzip"}},
		{"POST", collection, collection, "422", draft(nil), []string{"Idempotency-Key", "k"}},
		{"GET", collection, collection + "?page_size=1", "200", nil, nil},
		{"GET", collection, collection + "?page_size=0", "400", nil, nil},
		{"GET", one, path(v), "200", nil, nil},
		{"GET", one, "/v1/videos/x", "400", nil, nil},
		{"GET", one, unknown, "404", nil, nil},
		{"GET", one, path(gone), "410", nil, nil},
		{"PATCH", one, path(v), "200", `{"published_at": null}`, nil},
		{"PATCH", one, path(v), "415", `[]`, []string{"Content-Type", "application/json-patch+json"}},
		{"PATCH", one, path(v), "415", `{}`, []string{"Content-Encoding", "gzip"}},
		{"PATCH", one, path(v), "412", `{"title": "x"}`, []string{"If-Match", `"1"`}},
		{"PATCH", one, path(gone), "410", `{"title": "x"}`, nil},
		{"DELETE", one, path(v), "412", nil, []string{"If-Match", `"1"`}},
		{"DELETE", one, path(v), "200", `{"reason": "r"}`, nil},
		{"DELETE", one, path(v), "410", nil, nil},
		{"DELETE", one, unknown, "404", nil, nil},
		{"PUT", engagement, engaged(user, v), "410", `{}`, nil},
		{"PUT", engagement, engaged(user, other), "200", `{"liked": true}`, nil},
		{"PUT", engagement, engaged(user, other), "400", `{"liked": 1}`, nil},
		{"PUT", engagement, engaged(user, Video{ID: user}), "404", `{}`, nil},
		{"PUT", engagement, engaged(user, other), "412", `{}`, []string{"If-Match", `"2"`}},
		{"PUT", engagement, engaged(user, other), "413", strings.Repeat(" ", 1<<20), nil},
		{"PUT", engagement, engaged(user, other), "415", "x", []string{"Content-Type", "text/plain"}},
		{"PUT", engagement, engaged(user, other), "415", `{}`, []string{"Content-Encoding", "gzip"}},
		{"DELETE", engagement, engaged(user, other), "412", nil, []string{"If-Match", `"2"`}},
		{"DELETE", engagement, engaged(user, other), "413", strings.Repeat(" ", 1<<20), nil},
		{"DELETE", engagement, engaged(user, other), "415", "x", []string{"Content-Type", "text/plain"}},
		{"DELETE", engagement, engaged(user, other), "200", `{}`, nil},
		{"DELETE", engagement, engaged(user, other), "410", nil, nil},
		{"DELETE", engagement, engaged(uuid.New(), other), "404", nil, nil},
		{"GET", "/openapi.json", "/openapi.json", "200", nil, nil},
		{"GET", "/healthz", "/healthz", "200", nil, nil},
		{"GET", "/readyz", "/readyz", "200", nil, nil},
	}
	for _, test := range tests {
		r := a.call(test.method, test.path, test.body, test.headers...)
		if strconv.Itoa(r.Status) != test.status {
			t.Errorf("%s %s: %d %s, want %s", test.method, test.path, r.Status, r.Raw, test.status)
		}
		c.answer(test.method, test.route, test.status, r)
	}
}

// TestRequestSchemas compares the document's rules of a body with the service's.
func TestRequestSchemas(t *testing.T) {
	t.Parallel()
	a, c := newAPI(t), newContract(t)
	v := a.create()
	like := engaged(uuid.New(), v)
	with := func(field string, value any) map[string]any {
		return draft(func(d map[string]any) { d[field] = value })
	}
	tests := []struct {
		method, path, schema string
		body                 map[string]any
	}{
		{"POST", "/v1/videos", "NewVideo", draft(nil)},
		{"POST", "/v1/videos", "NewVideo", with("title", "")},
		{"POST", "/v1/videos", "NewVideo", with("title", nil)},
		{"POST", "/v1/videos", "NewVideo", with("title", strings.Repeat("é", 500))},
		{"POST", "/v1/videos", "NewVideo", with("title", strings.Repeat("é", 501))},
		{"POST", "/v1/videos", "NewVideo", with("description", nil)},
		{"POST", "/v1/videos", "NewVideo", with("description", strings.Repeat("x", 10_001))},
		{"POST", "/v1/videos", "NewVideo", with("duration_seconds", aggregate.MaxSeconds)},
		{"POST", "/v1/videos", "NewVideo", with("duration_seconds", aggregate.MaxSeconds+1)},
		{"POST", "/v1/videos", "NewVideo", with("duration_seconds", -1)},
		{"POST", "/v1/videos", "NewVideo", with("published_at", nil)},
		{"POST", "/v1/videos", "NewVideo", with("published_at", "soon")},
		{"POST", "/v1/videos", "NewVideo", with("uploader_id", "me")},
		{"POST", "/v1/videos", "NewVideo", with("views", 1)},
		{"POST", "/v1/videos", "NewVideo", map[string]any{"uploader_id": uuid.NewString()}},
		{"PATCH", path(v), "VideoPatch", map[string]any{}},
		{"PATCH", path(v), "VideoPatch", map[string]any{"title": nil}},
		{"PATCH", path(v), "VideoPatch", map[string]any{"description": nil, "published_at": nil}},
		{"PATCH", path(v), "VideoPatch", map[string]any{"duration_seconds": nil}},
		{"PATCH", path(v), "VideoPatch", map[string]any{"uploader_id": uuid.NewString()}},
		{"PATCH", path(v), "VideoPatch", map[string]any{"version": 1}},
		{"PUT", like, "NewEngagement", map[string]any{}},
		{"PUT", like, "NewEngagement", map[string]any{"liked": true, "bookmarked": false, "watched_seconds": aggregate.MaxSeconds}},
		{"PUT", like, "NewEngagement", map[string]any{"watched_seconds": aggregate.MaxSeconds + 1}},
		{"PUT", like, "NewEngagement", map[string]any{"watched_seconds": -1}},
		{"PUT", like, "NewEngagement", map[string]any{"watched_seconds": 0.5}},
		{"PUT", like, "NewEngagement", map[string]any{"liked": nil}},
		{"PUT", like, "NewEngagement", map[string]any{"bookmarked": "yes"}},
		{"PUT", like, "NewEngagement", map[string]any{"version": 1}},
	}
	for _, test := range tests {
		encoded, err := json.Marshal(test.body)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
		if err != nil {
			t.Fatal(err)
		}
		invalid := c.schema("components", "schemas", test.schema).Validate(value)
		if r := a.call(test.method, test.path, test.body); (r.Status >= 400) != (invalid != nil) {
			t.Errorf("%s %.100s: the service answers %d, the schema says %v", test.method, encoded, r.Status, invalid)
		}
	}
}

// The document says from which size on headers are refused. net/http takes 4 KiB more over HTTP/1.
func TestHeadersHaveTheDocumentedSize(t *testing.T) {
	t.Parallel()
	url := newAPI(t).url + "/openapi.json"
	documented := regexp.MustCompile(`headers of the request have more than (\d+) KiB`).FindSubmatch(openAPI)
	if documented == nil {
		t.Fatal("the document names no size of headers")
	}
	kib, err := strconv.Atoi(string(documented[1]))
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]int{kib - 1: http.StatusOK, kib + 5: http.StatusRequestHeaderFieldsTooLarge} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Size", strings.Repeat("x", size<<10))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("headers of %d KiB: %d, want %d", size, resp.StatusCode, want)
		}
	}
}

// TestIntegersOfAnswersHaveASize: without a format, generators of clients take 32 bits, which a sum of watched seconds outgrows.
func TestIntegersOfAnswersHaveASize(t *testing.T) {
	t.Parallel()
	var doc struct {
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	for name, schema := range doc.Components.Schemas {
		eachInteger(schema, name, func(path string, integer map[string]any) {
			if integer["format"] == nil && path != "Problem.properties.status" {
				t.Errorf("%s has no format", path)
			}
		})
	}
}

func eachInteger(v any, path string, visit func(path string, schema map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		if v["type"] == "integer" {
			visit(path, v)
		}
		for name, member := range v {
			eachInteger(member, path+"."+name, visit)
		}
	case []any:
		for _, member := range v {
			eachInteger(member, path, visit)
		}
	}
}

// TestRetriesAreDocumented: each operation of the API names the answers that may be tried again, and these have their pause.
// The document says after which answers a write may have been carried out: the answer to its COMMIT may be lost (503), too
// late for the request (504), or not readable (500).
func TestRetriesAreDocumented(t *testing.T) {
	t.Parallel()
	var doc struct {
		document
		Info struct{ Description string }
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	if unknown := "A write may have been carried out if its answer is 500, 504 or 503 UNAVAILABLE"; !strings.Contains(doc.Info.Description, unknown) {
		t.Errorf("the description does not say: %s", unknown)
	}
	for path, operations := range doc.Paths {
		for method, raw := range operations {
			if method == "parameters" || !strings.HasPrefix(path, "/v1/") {
				continue
			}
			var op struct {
				Responses map[string]struct {
					Ref string `json:"$ref"`
				}
			}
			if err := json.Unmarshal(raw, &op); err != nil {
				t.Fatal(err)
			}
			for _, status := range []string{"429", "503"} {
				name := strings.TrimPrefix(op.Responses[status].Ref, "#/components/responses/")
				if doc.Components.Responses[name].Headers["Retry-After"] == nil {
					t.Errorf("%s %s: %s has no Retry-After", method, path, status)
				}
			}
		}
	}
}

package catalog

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"example.com/lockstep/internal/serve"
)

// document is openapi.json in the form that the compiler of schemas takes.
func document(t testing.TB) (map[string]any, *jsonschema.Compiler) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	return doc.(map[string]any), c
}

// conforms checks an answer to a documented operation against its schema. A request for
// anything else must be answered with a problem.
func conforms(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	doc, compiler := document(t)
	pointer := "/components/schemas/Problem"
	media, path := resp.Header.Get("Content-Type"), req.URL.Path
	if strings.HasPrefix(path, "/v1/videos/") && strings.Count(path, "/") == 3 {
		path = "/v1/videos/{id}"
	}
	if strings.HasPrefix(path, "/v1/users/") && strings.HasSuffix(path, "/engagements") {
		path = "/v1/users/{user_id}/engagements"
	}
	operation, ok := dig(doc, "paths", path, strings.ToLower(req.Method)).(map[string]any)
	if ok {
		where := []string{"paths", path, strings.ToLower(req.Method), "responses", strconv.Itoa(resp.StatusCode)}
		response := dig(operation, "responses", where[4])
		if response == nil {
			t.Errorf("%s %s: status %d is not documented", req.Method, path, resp.StatusCode)
			return
		}
		if ref, ok := response.(map[string]any)["$ref"].(string); ok {
			where = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		}
		for name := range resp.Header {
			if !slices.Contains(onAll, name) && !slices.ContainsFunc(headerNames(doc, where), func(known string) bool {
				return strings.EqualFold(known, name)
			}) {
				t.Errorf("%s %s: the header %s of a %d is not documented", req.Method, path, name, resp.StatusCode)
			}
		}
		where = append(where, "content", media, "schema")
		if dig(doc, where...) == nil {
			t.Errorf("%s %s: %d as %s is not documented", req.Method, path, resp.StatusCode, media)
			return
		}
		pointer = ""
		for _, step := range where {
			pointer += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
		}
	} else if media != "application/problem+json" {
		t.Errorf("%s %s: answered as %s", req.Method, path, media)
	}
	schema, err := compiler.Compile("openapi.json#" + pointer)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s %s: %d %s: %v", req.Method, path, resp.StatusCode, body, err)
	}
}

// onAll are the headers that every answer has, or that net/http adds. The document leaves them out.
var onAll = []string{
	"Cache-Control", "Connection", "Content-Length", "Content-Security-Policy", "Content-Type", "Date", "Vary", "X-Content-Type-Options",
	"X-Frame-Options",
}

// headerNames returns the headers that the response at that place of the document has.
func headerNames(doc map[string]any, response []string) []string {
	headers, _ := dig(doc, append(slices.Clone(response), "headers")...).(map[string]any)
	return slices.Collect(maps.Keys(headers))
}

func dig(v any, path ...string) any {
	for _, step := range path {
		m, _ := v.(map[string]any)
		v = m[step]
	}
	return v
}

// The document and the router have the same operations, and every reference in the
// document has a target.
func TestOpenAPIMatchesTheRouter(t *testing.T) {
	t.Parallel()
	doc, compiler := document(t)
	var documented, routed []string
	for path, item := range doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			documented = append(documented, strings.ToUpper(method)+" "+path)
			if strings.HasPrefix(path, "/v1/") && dig(item, method, "responses", "default") == nil {
				t.Errorf("%s %s has no default, for INTERNAL and DEADLINE_EXCEEDED", method, path)
			}
		}
	}
	router := newRouter(nil, quiet(), serve.NewHealth(quiet()), openGuard())
	err := chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		routed = append(routed, method+" "+route)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(documented)
	slices.Sort(routed)
	if diff := cmp.Diff(documented, routed); diff != "" {
		t.Errorf("documented (-) and routed (+):\n%s", diff)
	}
	for name := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
		if _, err := compiler.Compile("openapi.json#/components/schemas/" + name); err != nil {
			t.Error(err)
		}
	}
	eachRef(doc, func(ref string) {
		if dig(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...) == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	})
}

func eachRef(v any, visit func(string)) {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			visit(ref)
		}
		for _, member := range v {
			eachRef(member, visit)
		}
	case []any:
		for _, member := range v {
			eachRef(member, visit)
		}
	}
}

// The document says from which size on headers are refused. net/http takes 4 KiB more over HTTP/1.
func TestHeadersHaveTheDocumentedSize(t *testing.T) {
	t.Parallel()
	url := "http://" + setUp(t).listen(t) + "/openapi.json"
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
	doc, _ := document(t)
	for name, schema := range dig(doc, "components", "schemas").(map[string]any) {
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

package fakegcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// maxBody is the maximum size of a request's body. Every resource is smaller.
const maxBody = 4 << 20

// fields is a JSON object. It is a resource, a policy, or a part of one of them.
type fields = map[string]any

// A call is a parsed request.
type call struct {
	ctx    context.Context //nolint:containedctx // it lives as long as the request
	api    *api
	method string
	// version is the API's version.
	version string
	// name is the name of the resource or the collection.
	name string
	// action is the part of the path after the colon, or empty.
	action string
	query  url.Values
	body   fields
}

// Request is a call that asks for a change.
type Request struct {
	// API is the short name of the service, such as run.
	API    string `json:"-"`
	Method string `json:"method"`
	// Path has the name and the action, such as projects/p/secrets/s:addVersion.
	Path  string            `json:"path"`
	Query map[string]string `json:"query,omitempty"`
	Body  map[string]any    `json:"body,omitempty"`
}

// Requests returns the recorded requests, in the order of their arrival.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

func (s *Server) read(r *http.Request) (*call, error) {
	c := &call{ctx: r.Context(), method: r.Method, query: r.URL.Query()}
	if c.api = apiOf(r.URL.Path); c.api == nil {
		return nil, &refusal{http.StatusNotImplemented, "UNIMPLEMENTED", "fakegcp: no service at " + r.URL.Path}
	}
	rest := strings.TrimPrefix(r.URL.Path, "/"+c.api.name+"/")
	if c.api.prefix != "" {
		rest = strings.TrimPrefix(rest, c.api.prefix+"/")
	}
	c.version, c.name, _ = strings.Cut(rest, "/")
	// A colon before the action comes after the last slash. A colon inside a name is escaped, or
	// comes before the last slash.
	if at := strings.LastIndexByte(c.name, ':'); at > strings.LastIndexByte(c.name, '/') {
		c.name, c.action = c.name[:at], c.name[at+1:]
	}
	// Google's services use the project's number in answers. They accept the number and the id in
	// requests.
	c.name = strings.Replace(c.name, "projects/"+s.options.Number+"/", "projects/"+s.options.Project+"/", 1)
	raw, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return nil, invalid("body", "%v", err)
	}
	if len(bytes.TrimSpace(raw)) > 0 {
		if err := json.Unmarshal(raw, &c.body); err != nil {
			return nil, invalid("body", "%v", err)
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(raw)) // for forward
	return c, nil
}

// changes reports whether the call changes something.
func (c *call) changes() bool {
	for _, question := range []string{"get", "test", "list"} {
		if strings.HasPrefix(c.action, question) {
			return false
		}
	}
	return c.method != http.MethodGet
}

func (s *Server) record(c *call) {
	request := Request{API: c.api.name, Method: c.method, Path: c.name, Body: clone(c.body)}
	if c.action != "" {
		request.Path += ":" + c.action
	}
	for key := range c.query {
		if key == "alt" || key == "prettyPrint" {
			continue
		}
		if request.Query == nil {
			request.Query = make(map[string]string)
		}
		request.Query[key] = c.query.Get(key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, request)
}

// clone returns a deep copy.
func clone(f fields) fields {
	if f == nil {
		return nil
	}
	return copied(f).(fields)
}

func copied(value any) any {
	switch v := value.(type) {
	case fields:
		all := make(fields, len(v))
		for name, element := range v {
			all[name] = copied(element)
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i, element := range v {
			all[i] = copied(element)
		}
		return all
	}
	return value
}

// matches reports whether a name matches a pattern. In the pattern, * stands for any one part of a
// name.
func matches(pattern, name string) bool {
	matched, err := path.Match(pattern, name)
	return err == nil && matched
}

// A refusal is an error with the fields that the services put in an answer.
type refusal struct {
	code            int
	status, message string
}

func (r *refusal) Error() string { return r.message }

func invalid(field, format string, args ...any) error {
	return &refusal{http.StatusBadRequest, "INVALID_ARGUMENT", field + ": " + fmt.Sprintf(format, args...)}
}

func missing(name string) error {
	return &refusal{http.StatusNotFound, "NOT_FOUND", "Resource '" + name + "' was not found"}
}

func denied(format string, args ...any) error {
	return &refusal{http.StatusForbidden, "PERMISSION_DENIED", fmt.Sprintf(format, args...)}
}

func precondition(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, "FAILED_PRECONDITION", fmt.Sprintf(format, args...)}
}

// unknown returns the refusal of a request that the fake does not implement.
func unknown(c *call) error {
	what := fmt.Sprintf("fakegcp: %s %s/%s %s %s", c.method, c.api.name, c.version, c.name, c.action)
	return &refusal{http.StatusNotImplemented, "UNIMPLEMENTED", what}
}

func refuse(w http.ResponseWriter, err error) {
	var r *refusal
	if !errors.As(err, &r) {
		r = &refusal{http.StatusInternalServerError, "INTERNAL", err.Error()}
	}
	reply(w, r.code, fields{"error": fields{"code": r.code, "status": r.status, "message": r.message}})
}

func reply(w http.ResponseWriter, code int, body fields) {
	if body == nil {
		body = fields{}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // fails if the client has hung up
}

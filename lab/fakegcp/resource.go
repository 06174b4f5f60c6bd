package fakegcp

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A resourceKind is a kind of resource.
type resourceKind struct {
	// collection is the pattern of the collections of this kind, such as projects/*/secrets.
	collection string
	// identify returns the id and the body of the resource to be created.
	identify func(s *Server, c *call) (id string, body fields, err error)
	// check returns an error if the service would refuse the resource. body is the body that would
	// be stored.
	check func(s *Server, c *call, body fields) error
	// complete adds the fields that the service adds. On an update, old is the old body. On a
	// creation, old is nil.
	complete func(s *Server, r *resource, old fields)
	// done is called after a change, without the lock. If done returns an error, the operation
	// fails with this error.
	done func(s *Server, c *call, r *resource, old fields) error
	// operation makes the answer to a change of the resource. If operation is nil, the answer is
	// the resource.
	operation func(r *resource, err error) fields
	// actions are the POST actions on a resource, by the name after the colon.
	actions map[string]func(s *Server, c *call) (fields, error)
	// listed is the field of a list's answer that has the elements. If listed is empty, the kind
	// cannot be listed.
	listed string
	// wrapped is the field of an update's body that has the resource. The mask is next to this
	// field. If wrapped is empty, the body is the resource, and the mask is in the query.
	wrapped string
	// If short is true, the name in the body is only the id, or the body has no name.
	short bool
	// If needs is true, the parent in the pattern must exist as a resource.
	needs bool
}

// A resource is stored under its full name, such as projects/p/secrets/s.
type resource struct {
	api, name string
	body      fields
	payload   string // of a secret's version, in base64; not returned by GET
}

func (r *resource) id() string { return r.name[strings.LastIndexByte(r.name, '/')+1:] }

func key(api, name string) string { return api + "/" + name }

// next returns a number that next has not returned before.
func (s *Server) next() string {
	s.count++
	return strconv.Itoa(s.count)
}

func (s *Server) get(c *call) (*resource, error) {
	r, found := s.resources[key(c.api.name, c.name)]
	if !found {
		return nil, missing(c.name)
	}
	return r, nil
}

func (s *Server) create(c *call, kind *resourceKind) (fields, error) {
	id, body, err := kind.identify(s, c)
	if err != nil {
		return nil, err
	}
	r := &resource{api: c.api.name, name: c.name + "/" + id, body: body}
	if _, taken := s.resources[key(r.api, r.name)]; taken {
		return nil, &refusal{409, "ALREADY_EXISTS", "Resource '" + r.name + "' already exists"}
	}
	if parent := c.name[:strings.LastIndexByte(c.name, '/')]; kind.needs && s.resources[key(r.api, parent)] == nil {
		return nil, missing(parent)
	}
	return s.keep(c, kind, r, nil)
}

// update replaces a resource. If the request has a mask, update replaces only the fields that the
// mask names.
func (s *Server) update(c *call, kind *resourceKind) (fields, error) {
	old, err := s.get(c)
	if err != nil {
		return nil, err
	}
	wanted, mask := c.body, c.query.Get("updateMask")
	if kind.wrapped != "" {
		wanted, mask = object(c.body, kind.wrapped), text(c.body["updateMask"])
	}
	body := clone(wanted)
	if mask != "" {
		body = clone(old.body)
		for path := range strings.SplitSeq(mask, ",") {
			name, _, _ := strings.Cut(camel(path), ".")
			delete(body, name)
			if value, given := wanted[name]; given {
				body[name] = value
			}
		}
	}
	return s.keep(c, kind, &resource{api: old.api, name: old.name, body: body}, old.body)
}

// camel turns update_mask into updateMask, because services accept both forms.
func camel(path string) string {
	parts := strings.Split(path, "_")
	for i, part := range parts[1:] {
		if part != "" {
			parts[i+1] = strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return strings.Join(parts, "")
}

// keep checks a resource, completes it and stores it.
func (s *Server) keep(c *call, kind *resourceKind, r *resource, old fields) (fields, error) {
	if r.body == nil {
		r.body = fields{}
	}
	if !kind.short {
		r.body["name"] = r.name
	}
	if kind.check != nil {
		if err := kind.check(s, c, r.body); err != nil {
			return nil, err
		}
	}
	if kind.complete != nil {
		kind.complete(s, r, old)
	}
	s.resources[key(r.api, r.name)] = r
	var failed error
	if kind.done != nil {
		s.mu.Unlock()
		failed = kind.done(s, c, r, old)
		s.mu.Lock()
	}
	return kind.changed(r, failed)
}

func (s *Server) remove(c *call, kind *resourceKind) (fields, error) {
	r, err := s.get(c)
	if err != nil {
		return nil, err
	}
	for name := range s.resources {
		if name == key(r.api, r.name) || strings.HasPrefix(name, key(r.api, r.name)+"/") {
			delete(s.resources, name)
			delete(s.policies, name)
		}
	}
	return kind.changed(&resource{api: r.api, name: r.name}, nil)
}

func (kind *resourceKind) changed(r *resource, failed error) (fields, error) {
	if kind.operation == nil {
		return r.body, failed
	}
	return kind.operation(r, failed), nil
}

func (s *Server) list(c *call, kind *resourceKind) (fields, error) {
	items := []any{}
	for _, name := range slices.Sorted(maps.Keys(s.resources)) {
		if matches(key(c.api.name, c.name)+"/*", name) {
			items = append(items, s.resources[name].body)
		}
	}
	return fields{kind.listed: items}, nil
}

// longRunning returns the usual form of an operation that is done. If failed is not nil, the
// operation has failed.
func longRunning(r *resource, failed error) fields {
	parts := strings.Split(r.name, "/")
	operation := fields{"name": strings.Join(parts[:min(4, len(parts))], "/") + "/operations/" + r.id(), "done": true}
	if failed != nil {
		operation["error"] = fields{"code": 9, "message": failed.Error()}
		return operation
	}
	operation["response"] = r.body
	if r.body == nil {
		operation["response"] = fields{}
	}
	return operation
}

// fromQuery returns a function for the field identify of a resourceKind. The function takes the new
// resource's id from a parameter of the query.
func fromQuery(parameter string) func(*Server, *call) (string, fields, error) {
	return func(_ *Server, c *call) (string, fields, error) {
		id := c.query.Get(parameter)
		if id == "" {
			return "", nil, invalid(parameter, "is missing")
		}
		return id, clone(c.body), nil
	}
}

// fromBody returns the id and the body of the resource that c creates. It is the field identify of
// a resourceKind whose service takes the resource's name from the body. The name in the body may be
// the id or the full name.
func fromBody(_ *Server, c *call) (string, fields, error) {
	name, _ := c.body["name"].(string)
	if name == "" {
		return "", nil, invalid("name", "is missing")
	}
	return name[strings.LastIndexByte(name, '/')+1:], clone(c.body), nil
}

// generated is the field identify of a resourceKind whose service chooses the id itself.
func generated(s *Server, c *call) (string, fields, error) { return s.next(), clone(c.body), nil }

// Remaining returns the names of all resources except the project and its services. Each name
// follows the short name of its API.
func (s *Server) Remaining() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, r := range s.resources {
		if r.api != servicesAPI && r.api != projectsAPI {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Resource returns a resource as GET would return it. If there is none, the error names the
// resource.
func (s *Server) Resource(api, name string) (map[string]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found := s.resources[key(api, name)]
	if !found {
		return nil, fmt.Errorf("%s: no %s", api, name)
	}
	return clone(r.body), nil
}

package fakegcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"time"
)

// callTime bounds one request, which may run a job.
const callTime = 2 * time.Minute

// Options configures a server. Project, Number and PubSub are required. The other fields may be
// zero.
type Options struct {
	// Project is the id of the only project. Number is its number.
	Project, Number string
	// PubSub is the base URL of the Pub/Sub to which the server passes REST requests for Pub/Sub.
	PubSub string
	// Enabled are the services that are enabled from the start, such as run.googleapis.com. The two
	// services that are needed to enable others are always enabled.
	Enabled []string
	// Execute runs one execution of a Cloud Run job. If it returns an error, the execution fails.
	// Execute may call the server. If Execute is nil, each execution succeeds at once.
	Execute func(ctx context.Context, e Execution) error
	// Start starts a revision of the Cloud Run service with the full name service. If it returns an
	// error, the revision is not ready, and the change of the service fails. Start may call the
	// server. If Start is nil, each revision is ready at once.
	Start func(ctx context.Context, service string) error
}

// bootstrap are the services that are needed to enable the others.
var bootstrap = []string{"cloudresourcemanager.googleapis.com", "serviceusage.googleapis.com"}

// Server is a running fake.
type Server struct {
	options Options
	pubsub  *httputil.ReverseProxy
	http    *http.Server
	addr    string
	served  chan struct{}

	mu        sync.Mutex // guards the fields below
	resources map[string]*resource
	policies  map[string]fields // by the key of the resource
	requests  []Request
	count     int // of the ids and etags issued
}

// Start serves on a free port of 127.0.0.1 until Close.
func Start(options Options) (*Server, error) {
	target, err := url.Parse(options.PubSub)
	if err != nil || target.Host == "" {
		return nil, fmt.Errorf("start fake of Google Cloud: PubSub: %q is no base URL", options.PubSub)
	}
	if options.Project == "" || options.Number == "" {
		return nil, errors.New("start fake of Google Cloud: Project and Number: both are needed")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start fake of Google Cloud: %w", err)
	}
	s := &Server{
		options: options, pubsub: httputil.NewSingleHostReverseProxy(target),
		addr: listener.Addr().String(), served: make(chan struct{}),
		resources: make(map[string]*resource), policies: make(map[string]fields),
	}
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: callTime, ReadTimeout: callTime, WriteTimeout: callTime}
	name := "projects/" + options.Project
	s.resources[key(projectsAPI, name)] = &resource{api: projectsAPI, name: name, body: fields{
		"projectId": options.Project, "projectNumber": options.Number, "lifecycleState": "ACTIVE",
	}}
	for _, name := range slices.Concat(bootstrap, options.Enabled) {
		s.enable(name)
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(listener) // ends with Close
	}()
	return s, nil
}

// URL returns the base URL of the server, without a slash at the end.
func (s *Server) URL() string { return "http://" + s.addr }

// Close ends all connections.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.served
	return err
}

// ServeHTTP answers one request to any of the services.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := s.read(r)
	if err != nil {
		refuse(w, err)
		return
	}
	if c.changes() {
		s.record(c)
	}
	if c.api.name == pubsubAPI {
		s.forward(w, r, c)
		return
	}
	body, err := s.answer(c)
	if err != nil {
		refuse(w, err)
		return
	}
	reply(w, http.StatusOK, body)
}

// answer finds the kind of resource that a call is about, and carries out the call. Calls run one
// at a time, except while a job runs or a revision starts.
func (s *Server) answer(c *call) (fields, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := s.do(c)
	return clone(body), err // other calls may change the stored body while the answer is encoded
}

func (s *Server) do(c *call) (fields, error) {
	if !s.enabled(c.api.service()) {
		return nil, denied("%s has not been used in project %s before or it is disabled", c.api.service(), s.options.Project)
	}
	if c.action == "getIamPolicy" || c.action == "setIamPolicy" {
		return s.policy(c)
	}
	for _, kind := range c.api.kinds {
		switch {
		case kind.creates(c):
			return s.create(c, kind)
		case kind.lists(c):
			return s.list(c, kind)
		case matches(kind.collection+"/*", c.name):
			return s.act(c, kind)
		}
	}
	return nil, unknown(c)
}

func (kind *resourceKind) creates(c *call) bool {
	return c.method == http.MethodPost && c.action == "" && matches(kind.collection, c.name)
}

func (kind *resourceKind) lists(c *call) bool {
	return c.method == http.MethodGet && c.action == "" && kind.listed != "" && matches(kind.collection, c.name)
}

// act carries out an action on one resource.
func (s *Server) act(c *call, kind *resourceKind) (fields, error) {
	if c.action != "" {
		do, known := kind.actions[c.action]
		if !known {
			return nil, unknown(c)
		}
		return do(s, c)
	}
	switch c.method {
	case http.MethodGet:
		r, err := s.get(c)
		if err != nil {
			return nil, err
		}
		return r.body, nil
	case http.MethodPatch, http.MethodPut:
		return s.update(c, kind)
	case http.MethodDelete:
		return s.remove(c, kind)
	}
	return nil, unknown(c)
}

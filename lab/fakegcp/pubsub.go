package fakegcp

import (
	"net/http"
	"strings"
)

// forward passes a request to the Pub/Sub behind the fake. The fake itself keeps only the grants,
// and deletes the grants of a resource when the resource is deleted.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, c *call) {
	s.mu.Lock()
	var err error
	switch {
	case !s.enabled(c.api.service()):
		err = denied("%s has not been used in project %s before or it is disabled", c.api.service(), s.options.Project)
	case c.action == "setIamPolicy":
		err = s.checkPolicy(object(c.body, "policy"))
	}
	s.mu.Unlock()
	if err != nil {
		refuse(w, err)
		return
	}
	r.URL.Path, r.URL.RawPath = strings.TrimPrefix(r.URL.Path, "/"+c.api.name), ""
	outcome := &status{ResponseWriter: w, code: http.StatusOK}
	s.pubsub.ServeHTTP(outcome, r)
	if outcome.code != http.StatusOK {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.action == "setIamPolicy":
		s.policies[key(c.api.name, c.name)] = clone(object(c.body, "policy"))
	case c.method == http.MethodDelete:
		delete(s.policies, key(c.api.name, c.name))
	}
}

// status records the status code of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

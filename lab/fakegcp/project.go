package fakegcp

import "strings"

// project is the kind of the only project. The project can be read, and has a policy.
var project = &resourceKind{collection: "projects"}

// projects is the kind for actions on the collection of a project's services.
var projects = &resourceKind{
	collection: "projects/*",
	actions: map[string]func(*Server, *call) (fields, error){
		"batchEnable": func(s *Server, c *call) (fields, error) {
			ids, _ := c.body["serviceIds"].([]any)
			for _, id := range ids {
				s.enable(text(id))
			}
			return longRunning(&resource{api: servicesAPI, name: c.name}, nil), nil
		},
	},
}

var projectService = &resourceKind{
	collection: "projects/*/services",
	listed:     "services",
	actions: map[string]func(*Server, *call) (fields, error){
		"enable": func(s *Server, c *call) (fields, error) {
			s.enable(lastPart(c.name))
			return longRunning(&resource{api: servicesAPI, name: c.name}, nil), nil
		},
		"disable": func(s *Server, c *call) (fields, error) {
			delete(s.resources, key(servicesAPI, c.name))
			return longRunning(&resource{api: servicesAPI, name: c.name}, nil), nil
		},
	},
}

func (s *Server) serviceName(id string) string {
	return "projects/" + s.options.Project + "/services/" + id
}

// enable enables a service. It stores the service as a resource, so that GET returns it.
func (s *Server) enable(id string) {
	name := s.serviceName(id)
	s.resources[key(servicesAPI, name)] = &resource{api: servicesAPI, name: name, body: fields{"name": name, "state": "ENABLED"}}
}

func (s *Server) enabled(id string) bool {
	return s.resources[key(servicesAPI, s.serviceName(id))] != nil
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }

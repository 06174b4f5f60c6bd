package fakegcp

import (
	"fmt"
	"reflect"
)

// changesTemplate reports whether a change of the service makes a new revision. It makes one only
// if the template changes, even if the last revision never became ready.
func changesTemplate(service *resource, old fields) bool {
	return old == nil || !reflect.DeepEqual(service.body["template"], old["template"])
}

// startRevision starts the new revision after a change of a service. If the revision does not
// become ready, the change fails. The service then has the requested configuration. The previous
// revision, if there is one, keeps serving.
func (s *Server) startRevision(c *call, service *resource, old fields) error {
	if !changesTemplate(service, old) {
		return nil
	}
	revision := lastPart(text(service.body["latestCreatedRevision"]))
	err := s.mountSecrets(service)
	if err == nil && s.options.Start != nil {
		err = s.options.Start(c.ctx, service.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		service.body["terminalCondition"] = fields{"type": "Ready", "state": "CONDITION_FAILED", "message": err.Error()}
		//nolint:staticcheck // as Cloud Run says it
		return fmt.Errorf("Revision '%s' is not ready and cannot serve traffic. %w", revision, err)
	}
	service.body["latestReadyRevision"] = service.body["latestCreatedRevision"]
	return nil
}

func (s *Server) mountSecrets(service *resource) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	revision := revisionOf(service.body)
	for i, container := range objects(revision["containers"]) {
		if err := s.checkSecrets(fmt.Sprintf("template.containers[%d]", i), container, text(revision["serviceAccount"])); err != nil {
			return err
		}
	}
	return nil
}

package fakegcp

import (
	"fmt"
	"reflect"
)

// changesTemplate reports whether a new revision is needed. Without a change of
// the template there is none, even if the last one never became ready.
func changesTemplate(service *resource, old fields) bool {
	return old == nil || !reflect.DeepEqual(service.body["template"], old["template"])
}

// startRevision is the second half of a service's change. A revision that does
// not become ready fails the change. The service remains, with the requested
// configuration; the revision before, if there is one, keeps serving.
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

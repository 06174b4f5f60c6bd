package localpubsub

import (
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The limits of schemas (https://cloud.google.com/pubsub/docs/schemas).
const (
	maxSchemas    = 10_000  // of a project
	maxRevisions  = 20      // of a schema
	maxDefinition = 300_000 // bytes
)

const (
	// maxStored bounds what all schemas hold together, which the service bounds by
	// project only. It counts definitions, each with revisionCost on top. Compiled,
	// a definition takes 10 to 40 times its text, and 120 if it is all maps.
	maxStored    = 16_000_000 // bytes
	revisionCost = 1_000      // bytes
)

// schemas serves google.pubsub.v1.SchemaService, and judges messages for topics.
// Protocol Buffer schemas given as source text are all that it knows: Avro and
// compiled descriptors are UNIMPLEMENTED. Memory is bounded by maxStored.
//
// Unlike the service, which takes minutes at times, it applies a change at once.
type schemas struct {
	pubsubpb.UnimplementedSchemaServiceServer

	now func() time.Time

	mu       sync.RWMutex
	byName   map[string]history // whose elements never change
	projects map[string]int     // schemas by project
	stored   int
}

func newSchemas(now func() time.Time) *schemas {
	return &schemas{now: now, byName: map[string]history{}, projects: map[string]int{}}
}

// forget drops everything.
func (s *schemas) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName, s.projects, s.stored = map[string]history{}, map[string]int{}, 0
}

// history is nil for an unknown name.
func (s *schemas) history(name string) history {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byName[name]
}

// room wants space for one more revision. The caller holds the lock.
func (s *schemas) room(added *revision) error {
	if s.stored+added.cost() > maxStored {
		return status.Errorf(codes.ResourceExhausted, "the server keeps %d bytes of schemas, its limit is %d", s.stored, maxStored)
	}
	return nil
}

// add appends a revision, as the newest, to a schema that exists. The caller holds
// the lock.
func (s *schemas) add(name string, added *revision) error {
	old := s.byName[name]
	if old.len() >= maxRevisions {
		return status.Errorf(codes.ResourceExhausted, "%s has %d revisions, as many as a schema may have; delete one", name, maxRevisions)
	}
	if err := s.room(added); err != nil {
		return err
	}
	s.stored += added.cost()
	s.byName[name] = old.with(added)
	return nil
}

// checkParent wants projects/PROJECT.
func checkParent(parent string) error {
	project, ok := strings.CutPrefix(parent, "projects/")
	if !ok || project == "" || strings.Contains(project, "/") {
		return invalid("parent", "%q is not of the form projects/PROJECT", parent)
	}
	return nil
}

// splitRevision takes projects/PROJECT/schemas/ID or the same with @REVISION.
func splitRevision(full string) (name, id string, err error) {
	name, id, given := strings.Cut(full, "@")
	if given && id == "" {
		return "", "", invalid("name", "%q ends where a revision id should be", full)
	}
	return name, id, checkName(name, "schemas", "name")
}

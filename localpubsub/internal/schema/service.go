// Package schema keeps the schemas of a server and their revisions, serves
// google.pubsub.v1.SchemaService, and validates messages for topics.
//
//	definition ──▶ compile ──▶ revision ──▶ history of a schema
//	                              │            │ a topic allows a range of it
//	                              ▼            ▼
//	     compatible with each older one?    Check: data is valid for one of them
//
// The package supports only Protocol Buffer schemas that are given as source text. For Avro schemas
// and compiled descriptors it returns UNIMPLEMENTED.
package schema

import (
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/localpubsub/internal/resource"
)

// The limits of schemas (https://cloud.google.com/pubsub/docs/schemas).
const (
	maxSchemas    = 10_000  // of a project
	maxRevisions  = 20      // of a schema
	maxDefinition = 300_000 // bytes
)

const (
	// maxStored is the limit for the size of all schemas together. Google's service has a limit for
	// each project instead. The size of a revision is the length of its definition plus
	// revisionCost. A compiled definition takes 10 to 40 times the memory of its text. It takes 120
	// times that memory if the definition consists of maps.
	maxStored    = 16_000_000 // bytes
	revisionCost = 1_000      // bytes
)

// Service has the schemas of all projects. maxStored bounds their memory. Here a change takes
// effect at once. In Google's service it sometimes takes minutes.
type Service struct {
	pubsubpb.UnimplementedSchemaServiceServer

	now func() time.Time

	mu       sync.RWMutex
	byName   map[string]history // the elements never change
	projects map[string]int     // schemas by project
	stored   int
}

// New returns a service without schemas. now gives the time of new revisions.
func New(now func() time.Time) *Service {
	return &Service{now: now, byName: map[string]history{}, projects: map[string]int{}}
}

// Forget deletes everything.
func (s *Service) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName, s.projects, s.stored = map[string]history{}, map[string]int{}, 0
}

// history returns the revisions of a schema, or nil if the name is unknown.
func (s *Service) history(name string) history {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byName[name]
}

// room returns an error unless there is space for one more revision. The caller
// holds the lock.
func (s *Service) room(added *revision) error {
	if s.stored+added.cost() > maxStored {
		return status.Errorf(codes.ResourceExhausted, "the server keeps %d bytes of schemas, its limit is %d", s.stored, maxStored)
	}
	return nil
}

// add appends a revision to a schema as its newest one. It creates the schema if the name is new.
// The caller holds the lock.
func (s *Service) add(name string, added *revision) error {
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

// splitRevision splits a name of the form projects/PROJECT/schemas/ID@REVISION into the name of the
// schema and the revision id. @REVISION may be absent.
func splitRevision(full string) (name, id string, err error) {
	name, id, given := strings.Cut(full, "@")
	if given && id == "" {
		return "", "", resource.Invalid("name", "%q ends where a revision id should be", full)
	}
	return name, id, resource.CheckName(name, "schemas", "name")
}

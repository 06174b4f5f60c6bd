package schema

import (
	"context"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// CreateSchema creates a schema. It returns ALREADY_EXISTS if the name is taken, INVALID_ARGUMENT
// if the definition is invalid, and RESOURCE_EXHAUSTED if a limit is reached.
func (s *Service) CreateSchema(ctx context.Context, req *pubsubpb.CreateSchemaRequest) (*pubsubpb.Schema, error) {
	if err := resource.CheckProject(req.GetParent(), "parent"); err != nil {
		return nil, err
	}
	name := req.GetParent() + "/schemas/" + req.GetSchemaId()
	if err := resource.CheckName(name, "schemas", "schema_id"); err != nil {
		return nil, err
	}
	unnamed, err := compileRevision(ctx, req.GetSchema())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[name] != nil {
		return nil, resource.Taken(name)
	}
	if s.projects[req.GetParent()] >= maxSchemas {
		return nil, status.Errorf(codes.ResourceExhausted, "%s has %d schemas, the most that a project may have", req.GetParent(), maxSchemas)
	}
	created := unnamed.named(name, history(nil).nextID(), 1, s.now())
	if err := s.add(name, created); err != nil {
		return nil, err
	}
	s.projects[req.GetParent()]++
	return created.describe(name, pubsubpb.SchemaView_FULL), nil
}

// CommitSchema adds a revision as the newest one. The revision must be compatible with each older
// revision of the schema. If it is not, CommitSchema returns INVALID_ARGUMENT. The error names the
// conflicting revision and the reason.
func (s *Service) CommitSchema(ctx context.Context, req *pubsubpb.CommitSchemaRequest) (*pubsubpb.Schema, error) {
	if err := resource.CheckName(req.GetName(), "schemas", "name"); err != nil {
		return nil, err
	}
	unnamed, err := compileRevision(ctx, req.GetSchema())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byName[req.GetName()]
	if old == nil {
		return nil, resource.Missing(req.GetName())
	}
	if err := old.accept(unnamed); err != nil {
		return nil, err
	}
	return s.append(req.GetName(), unnamed)
}

// append gives the revision an id, a number and a time, and adds it to an existing schema. The
// caller holds the lock.
func (s *Service) append(name string, unnamed *revision) (*pubsubpb.Schema, error) {
	old := s.byName[name]
	added := unnamed.named(name, old.nextID(), old.nextNumber(), s.now())
	if err := s.add(name, added); err != nil {
		return nil, err
	}
	return added.describe(name, pubsubpb.SchemaView_FULL), nil
}

// RollbackSchema commits a copy of an older revision.
func (s *Service) RollbackSchema(_ context.Context, req *pubsubpb.RollbackSchemaRequest) (*pubsubpb.Schema, error) {
	if err := resource.CheckName(req.GetName(), "schemas", "name"); err != nil {
		return nil, err
	}
	if req.GetRevisionId() == "" {
		return nil, resource.Invalid("revision_id", "is needed")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byName[req.GetName()].find(req.GetRevisionId())
	if found == nil {
		return nil, resource.Missing(req.GetName() + "@" + req.GetRevisionId())
	}
	return s.append(req.GetName(), found)
}

// DeleteSchemaRevision deletes the revision whose id is in the name. It returns the schema with its
// newest remaining revision. If the schema has only one revision, it returns FAILED_PRECONDITION.
// Google does not document the code for this case
// (https://cloud.google.com/pubsub/docs/delete-schema-revision).
func (s *Service) DeleteSchemaRevision(_ context.Context, req *pubsubpb.DeleteSchemaRevisionRequest) (*pubsubpb.Schema, error) {
	name, id, err := splitRevision(req.GetName())
	if err != nil {
		return nil, err
	}
	if id == "" {
		return nil, resource.Invalid("name", "%q has no @REVISION", req.GetName())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byName[name]
	found := old.find(id)
	if found == nil {
		return nil, resource.Missing(req.GetName())
	}
	if old.len() == 1 {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is the only revision of its schema; delete the schema instead", req.GetName())
	}
	s.stored -= found.cost()
	left := old.without(old.index(id))
	s.byName[name] = left
	return left.newest().describe(name, pubsubpb.SchemaView_FULL), nil
}

// DeleteSchema deletes a schema with all its revisions. After that, publishing to a topic with this
// schema fails (https://cloud.google.com/pubsub/docs/delete-schema).
func (s *Service) DeleteSchema(_ context.Context, req *pubsubpb.DeleteSchemaRequest) (*emptypb.Empty, error) {
	if err := resource.CheckName(req.GetName(), "schemas", "name"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byName[req.GetName()]
	if old == nil {
		return nil, resource.Missing(req.GetName())
	}
	for _, r := range old {
		if r.root != nil {
			s.stored -= r.cost()
		}
	}
	delete(s.byName, req.GetName())
	parent, _, _ := strings.Cut(req.GetName(), "/schemas/")
	s.projects[parent]--
	if s.projects[parent] == 0 {
		delete(s.projects, parent)
	}
	return &emptypb.Empty{}, nil
}

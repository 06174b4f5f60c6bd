package schema

import (
	"context"
	"fmt"
	"math"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// GetSchema returns the newest revision of a schema. If the name ends with @ and a revision id, it
// returns that revision. If the view is BASIC, the result has no definition.
func (s *Service) GetSchema(_ context.Context, req *pubsubpb.GetSchemaRequest) (*pubsubpb.Schema, error) {
	view, err := viewOr(req.GetView(), pubsubpb.SchemaView_FULL)
	if err != nil {
		return nil, err
	}
	found, err := s.revision(req.GetName())
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(req.GetName(), "@")
	return found.describe(name, view), nil
}

// revision returns the newest revision of the schema that full names. If full ends with @ and a
// revision id, it returns that revision.
func (s *Service) revision(full string) (*revision, error) {
	name, id, err := splitRevision(full)
	if err != nil {
		return nil, err
	}
	of := s.history(name)
	found := of.newest()
	if id != "" {
		found = of.find(id)
	}
	if found == nil {
		return nil, resource.Missing(full)
	}
	return found, nil
}

// ListSchemas returns the newest revision of each schema in a project, in the order of the names.
// Only if the view is FULL, the result has the definitions.
func (s *Service) ListSchemas(_ context.Context, req *pubsubpb.ListSchemasRequest) (*pubsubpb.ListSchemasResponse, error) {
	if err := resource.CheckProject(req.GetParent(), "parent"); err != nil {
		return nil, err
	}
	view, err := viewOr(req.GetView(), pubsubpb.SchemaView_BASIC)
	if err != nil {
		return nil, err
	}
	names, next, err := resource.Page(s.names(req.GetParent()), req)
	if err != nil {
		return nil, err
	}
	answer := &pubsubpb.ListSchemasResponse{NextPageToken: next}
	for _, name := range names {
		if newest := s.history(name).newest(); newest != nil {
			answer.Schemas = append(answer.Schemas, newest.describe(name, view))
		}
	}
	return answer, nil
}

func (s *Service) names(parent string) (names []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name := range s.byName {
		if strings.HasPrefix(name, parent+"/") {
			names = append(names, name)
		}
	}
	return names
}

// ListSchemaRevisions returns the revisions of a schema, newest first (https://google.aip.dev/162).
// Only if the view is FULL, the result has the definitions.
func (s *Service) ListSchemaRevisions(
	_ context.Context, req *pubsubpb.ListSchemaRevisionsRequest,
) (*pubsubpb.ListSchemaRevisionsResponse, error) {
	if err := resource.CheckName(req.GetName(), "schemas", "name"); err != nil {
		return nil, err
	}
	view, err := viewOr(req.GetView(), pubsubpb.SchemaView_BASIC)
	if err != nil {
		return nil, err
	}
	of := s.history(req.GetName())
	if of == nil {
		return nil, resource.Missing(req.GetName())
	}
	byKey := make(map[string]*revision, len(of))
	var keys []string
	for _, r := range of {
		if r.root != nil {
			key := fmt.Sprintf("%010d", math.MaxInt32-r.number) // a page is in ascending order of its keys
			byKey[key] = r
			keys = append(keys, key)
		}
	}
	keys, next, err := resource.Page(keys, req)
	if err != nil {
		return nil, err
	}
	answer := &pubsubpb.ListSchemaRevisionsResponse{NextPageToken: next}
	for _, key := range keys {
		answer.Schemas = append(answer.Schemas, byKey[key].describe(req.GetName(), view))
	}
	return answer, nil
}

func viewOr(asked, otherwise pubsubpb.SchemaView) (pubsubpb.SchemaView, error) {
	switch asked {
	case pubsubpb.SchemaView_SCHEMA_VIEW_UNSPECIFIED:
		return otherwise, nil
	case pubsubpb.SchemaView_BASIC, pubsubpb.SchemaView_FULL:
		return asked, nil
	default:
		return 0, resource.Invalid("view", "%d is unknown", asked)
	}
}

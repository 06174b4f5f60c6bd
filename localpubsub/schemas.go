package localpubsub

import (
	"context"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/localpubsub/internal/schema"
)

// deletedSchema replaces the name of a deleted schema in the settings of its topics. Publishing to
// such a topic fails (https://cloud.google.com/pubsub/docs/delete-schema).
const deletedSchema = "_deleted-schema_"

// schemaService is schema.Service with another DeleteSchema. This DeleteSchema also removes the
// schema's policy, and marks the schema as deleted in its topics.
type schemaService struct {
	*schema.Service

	server *Server
}

// DeleteSchema returns NOT_FOUND for an unknown schema.
func (s schemaService) DeleteSchema(ctx context.Context, req *pubsubpb.DeleteSchemaRequest) (*emptypb.Empty, error) {
	answer, err := s.Service.DeleteSchema(ctx, req)
	if err != nil {
		return nil, err
	}
	s.server.policies.Remove(req.GetName())
	for _, t := range s.server.topics.all() {
		t.loseSchema(req.GetName())
	}
	return answer, nil
}

func (t *topic) loseSchema(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.config.GetSchemaSettings().GetSchema() != name {
		return
	}
	config := proto.CloneOf(t.config)
	config.SchemaSettings.Schema = deletedSchema
	t.config = config
}

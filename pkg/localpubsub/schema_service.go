package localpubsub

import (
	"context"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

// deletedSchema stands for the schema of a topic that has outlived it. Nothing can
// be published there (https://cloud.google.com/pubsub/docs/delete-schema).
const deletedSchema = "_deleted-schema_"

// schemaService takes a deleted schema away from its policy and its topics, too.
type schemaService struct {
	*schemas

	server *Server
}

// DeleteSchema answers NOT_FOUND for an unknown one.
func (s schemaService) DeleteSchema(ctx context.Context, req *pubsubpb.DeleteSchemaRequest) (*emptypb.Empty, error) {
	answer, err := s.schemas.DeleteSchema(ctx, req)
	if err != nil {
		return nil, err
	}
	s.server.policies.remove(req.GetName())
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

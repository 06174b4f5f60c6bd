package schema

import (
	"context"
	"fmt"
	"slices"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

// Check validates the data of a message against the topic's schema. The data must be valid for one
// of the revisions that the settings allow. Check tries the newest revision first, as Google
// announced when it published schema evolution. It returns the attributes that the service adds to
// the message. This map is shared, so the caller must not change it. If the data fits no revision,
// the error is INVALID_ARGUMENT. If the schema is deleted, the error is NOT_FOUND. If a new schema
// has the name of a deleted one, the new schema applies.
func (s *Service) Check(settings *pubsubpb.SchemaSettings, data []byte) (attributes map[string]string, err error) {
	of := s.history(settings.GetSchema())
	if of == nil {
		return nil, resource.Missing(settings.GetSchema())
	}
	var why error
	for _, r := range slices.Backward(of.between(settings.GetFirstRevisionId(), settings.GetLastRevisionId())) {
		if r.root == nil {
			continue
		}
		attributes, err := r.judge(settings.GetEncoding(), data)
		if err == nil {
			return attributes, nil
		}
		if why == nil {
			why = fmt.Errorf("revision %s: %w", r.id, err)
		}
	}
	if why == nil {
		why = fmt.Errorf("no revision from %q to %q is left", settings.GetFirstRevisionId(), settings.GetLastRevisionId())
	}
	return nil, resource.Invalid("messages", "Invalid data in message: Message failed schema validation. %v", why)
}

// judge validates the data against the revision. If the data is valid, it
// returns the attributes for the message.
func (r *revision) judge(encoding pubsubpb.Encoding, data []byte) (map[string]string, error) {
	switch encoding {
	case pubsubpb.Encoding_BINARY:
		return r.binary, validBinary(r.root, data)
	case pubsubpb.Encoding_JSON:
		return r.json, validJSON(r.root, data)
	default:
		return nil, fmt.Errorf("%v is no encoding of messages", encoding)
	}
}

// CheckSettings returns NOT_FOUND unless the schema of a topic and the named revisions exist. It
// returns INVALID_ARGUMENT unless the encoding and the order of the revisions are valid. It must be
// called for new settings only, because a topic keeps its settings after their revisions are
// deleted.
func (s *Service) CheckSettings(settings *pubsubpb.SchemaSettings) error {
	name := settings.GetSchema()
	if err := resource.CheckName(name, "schemas", "schema_settings.schema"); err != nil {
		return err
	}
	if err := checkEncoding(settings.GetEncoding(), "schema_settings.encoding"); err != nil {
		return err
	}
	of := s.history(name)
	if of == nil {
		return resource.Missing(name)
	}
	first, last := settings.GetFirstRevisionId(), settings.GetLastRevisionId()
	for _, id := range []string{first, last} {
		if id != "" && of.find(id) == nil {
			return resource.Missing(name + "@" + id)
		}
	}
	if first != "" && last != "" && of.index(first) > of.index(last) {
		return resource.Invalid("schema_settings.first_revision_id", "%s is newer than last_revision_id, %s", first, last)
	}
	return nil
}

func checkEncoding(encoding pubsubpb.Encoding, field string) error {
	if encoding != pubsubpb.Encoding_BINARY && encoding != pubsubpb.Encoding_JSON {
		return resource.Invalid(field, "%v is no encoding of messages; JSON and BINARY are", encoding)
	}
	return nil
}

// ValidateSchema returns INVALID_ARGUMENT if CreateSchema would refuse the definition.
func (s *Service) ValidateSchema(
	ctx context.Context, req *pubsubpb.ValidateSchemaRequest,
) (*pubsubpb.ValidateSchemaResponse, error) {
	if err := resource.CheckProject(req.GetParent(), "parent"); err != nil {
		return nil, err
	}
	if _, err := compileRevision(ctx, req.GetSchema()); err != nil {
		return nil, err
	}
	return &pubsubpb.ValidateSchemaResponse{}, nil
}

// ValidateMessage validates a message. The request has a schema or the name of a schema. A name
// without a revision id stands for the newest revision of the schema.
func (s *Service) ValidateMessage(
	ctx context.Context, req *pubsubpb.ValidateMessageRequest,
) (*pubsubpb.ValidateMessageResponse, error) {
	if err := resource.CheckProject(req.GetParent(), "parent"); err != nil {
		return nil, err
	}
	if err := checkEncoding(req.GetEncoding(), "encoding"); err != nil {
		return nil, err
	}
	by, err := s.specified(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := by.judge(req.GetEncoding(), req.GetMessage()); err != nil {
		return nil, resource.Invalid("message", "Invalid data in message: Message failed schema validation. %v", err)
	}
	return &pubsubpb.ValidateMessageResponse{}, nil
}

func (s *Service) specified(ctx context.Context, req *pubsubpb.ValidateMessageRequest) (*revision, error) {
	switch spec := req.GetSchemaSpec().(type) {
	case *pubsubpb.ValidateMessageRequest_Name:
		return s.revision(spec.Name)
	case *pubsubpb.ValidateMessageRequest_Schema:
		return compileRevision(ctx, spec.Schema)
	default:
		return nil, resource.Invalid("schema_spec", "a name or a schema is needed")
	}
}

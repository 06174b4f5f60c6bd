package broker

import (
	"context"
	"fmt"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/deploy/schemas"
)

// schema creates the topic's schema, or updates it to the present definition. It returns the
// settings with which the topic refers to the schema. It returns nil if the topic has no schema, or
// if the broker supports no schemas.
func (p *provisioner) schema(ctx context.Context, topic string) (*pubsubpb.SchemaSettings, error) {
	definition, err := schemas.Definition(topic)
	if definition == "" || err != nil {
		return nil, err
	}
	id := schemaID(topic)
	want := &pubsubpb.Schema{Name: p.parent() + "/schemas/" + id, Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: definition}
	switch err := p.put(ctx, id, want); status.Code(err) {
	case codes.OK:
	case codes.Unimplemented:
		p.done.Left = append(p.done.Left, want.GetName())
		return nil, nil
	default:
		return nil, fmt.Errorf("schema %s: %w", want.GetName(), err)
	}
	return &pubsubpb.SchemaSettings{Schema: want.GetName(), Encoding: pubsubpb.Encoding_BINARY}, nil
}

// schemaID is the name of a topic's schema in deploy/terraform.
func schemaID(topic string) string { return strings.ReplaceAll(topic, ".", "-") }

// put creates the schema, or updates it. It reads the schema first, because brokers differ in their
// answers to a second creation.
func (p *provisioner) put(ctx context.Context, id string, want *pubsubpb.Schema) error {
	name := want.GetName()
	is, err := p.schemas.GetSchema(ctx, &pubsubpb.GetSchemaRequest{Name: name, View: pubsubpb.SchemaView_FULL})
	if status.Code(err) == codes.NotFound {
		_, err := p.schemas.CreateSchema(ctx, &pubsubpb.CreateSchemaRequest{Parent: p.parent(), SchemaId: id, Schema: want})
		switch status.Code(err) {
		case codes.OK:
			p.done.Created = append(p.done.Created, name)
		case codes.AlreadyExists: // created concurrently
			return p.put(ctx, id, want)
		default:
		}
		return err
	}
	if err != nil {
		return err
	}
	if is.GetDefinition() == want.GetDefinition() {
		p.done.Existing = append(p.done.Existing, name)
		return nil
	}
	if _, err := p.schemas.CommitSchema(ctx, &pubsubpb.CommitSchemaRequest{Name: name, Schema: want}); err != nil {
		return err
	}
	p.done.Changed = append(p.done.Changed, name)
	return nil
}

// attach gives an existing topic the schema and encoding of want. If the topic has both already,
// attach changes nothing, so that the topic's bounds on revisions stay.
func (p *provisioner) attach(ctx context.Context, want *pubsubpb.Topic) error {
	is, err := p.topics.GetTopic(ctx, &pubsubpb.GetTopicRequest{Topic: want.GetName()})
	if err != nil {
		return fmt.Errorf("look at %s: %w", want.GetName(), err)
	}
	has, wants := is.GetSchemaSettings(), want.GetSchemaSettings()
	if has.GetSchema() == wants.GetSchema() && has.GetEncoding() == wants.GetEncoding() {
		if first, last := has.GetFirstRevisionId(), has.GetLastRevisionId(); first != "" || last != "" {
			p.done.Bounded = append(p.done.Bounded, fmt.Sprintf("%s (first %q, last %q)", want.GetName(), first, last))
		}
		return nil
	}
	mask := &fieldmaskpb.FieldMask{Paths: []string{"schema_settings"}}
	if _, err := p.topics.UpdateTopic(ctx, &pubsubpb.UpdateTopicRequest{Topic: want, UpdateMask: mask}); err != nil {
		return fmt.Errorf("attach the schema to %s: %w", want.GetName(), err)
	}
	p.done.Changed = append(p.done.Changed, want.GetName())
	return nil
}

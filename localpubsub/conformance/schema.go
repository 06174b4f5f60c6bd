package conformance

import (
	"context"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// reading is a schema. coloured is its next revision.
	reading  = `syntax = "proto3"; message Reading { string place = 1; int32 degrees = 2; }`
	coloured = `syntax = "proto3"; message Reading { string place = 1; int32 degrees = 2; string colour = 3; }`
	// deletedSchema replaces the name of a deleted schema in a topic.
	deletedSchema = "_deleted-schema_"
)

// readingJSON and readingBinary are the same message for the schema reading. colouredJSON is a
// message that only the schema coloured accepts.
const (
	readingJSON  = `{"place": "here", "degrees": 20}`
	colouredJSON = `{"place": "here", "colour": "red"}`
)

func readingBinary() []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "here")
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 20)
}

func schemas() area {
	source := page("schemas")
	return area{"schemas", []Behaviour{
		{Name: "a protobuf schema is read back as it was created", Source: rpc("Schema"), try: schemaIsReadBack},
		{Name: "a schema's basic view leaves out the definition", Source: rpc("GetSchemaRequest"), try: schemaHasViews},
		{Name: "a malformed schema definition is refused", Source: rpc("Schema"), try: schemaIsParsed},
		{Name: "a protobuf schema imports nothing and has one top-level message", Source: source, try: schemaStandsAlone},
		{Name: "a second schema of the same name already exists", Source: page("reference/error-codes"), try: schemaExists},
		{Name: "a definition can be validated without being created", Source: rpc("ValidateSchemaRequest"), try: schemaIsValidated},
		{Name: "a message can be validated without being published", Source: rpc("ValidateMessageRequest"), try: messageIsValidated},
		{Name: "a topic with a missing schema is not found", Source: page("create-topic"), try: topicNeedsSchema},
		{Name: "a binary message that fits the schema is accepted, another refused", Source: source, try: binaryIsEnforced},
		{Name: "a JSON message that fits the schema is accepted, another refused", Source: source, try: jsonIsEnforced},
		{Name: "a message names the schema it was validated against", Source: source, try: messageNamesSchema},
		{Name: "schemas are listed in pages, each once", Source: rpc("ListSchemasRequest"), try: schemasAreListed},
		{Name: "a deleted schema is named _deleted-schema_ and refuses messages", Source: rpc("SchemaSettings"), try: schemaIsDeleted},
	}}
}

func (t *trial) schema(definition string) *pubsubpb.Schema {
	name := t.name("schemas")
	s, err := t.createSchema(name[strings.LastIndexByte(name, '/')+1:], definition)
	t.must(err)
	return s
}

func (t *trial) createSchema(id, definition string) (*pubsubpb.Schema, error) {
	s, err := t.schemas.CreateSchema(t.ctx, &pubsubpb.CreateSchemaRequest{
		Parent: "projects/" + t.project, SchemaId: id,
		Schema: &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: definition},
	})
	if err == nil {
		name := "projects/" + t.project + "/schemas/" + id
		t.cleanup(func(ctx context.Context) {
			_, _ = t.schemas.DeleteSchema(ctx, &pubsubpb.DeleteSchemaRequest{Name: name})
		})
	}
	return s, err
}

// schemaTopic creates a topic that requires messages of the schema.
func (t *trial) schemaTopic(schema string, encoding pubsubpb.Encoding) string {
	return t.topicWith(&pubsubpb.Topic{SchemaSettings: &pubsubpb.SchemaSettings{Schema: schema, Encoding: encoding}}).GetName()
}

func schemaIsReadBack(t *trial) {
	created := t.schema(reading)
	read, err := t.schemas.GetSchema(t.ctx, &pubsubpb.GetSchemaRequest{Name: created.GetName(), View: pubsubpb.SchemaView_FULL})
	t.must(err)
	t.checkf(created.GetRevisionId() != "", "it has no revision")
	t.checkf(read.GetRevisionCreateTime().IsValid(), "its revision has no time")
	equal(t, "revision", read.GetRevisionId(), created.GetRevisionId())
	equal(t, "type", read.GetType(), pubsubpb.Schema_PROTOCOL_BUFFER)
	equal(t, "definition", read.GetDefinition(), reading)
}

func schemaHasViews(t *trial) {
	name := t.schema(reading).GetName()
	for view, want := range map[pubsubpb.SchemaView]string{
		pubsubpb.SchemaView_BASIC: "", pubsubpb.SchemaView_FULL: reading, pubsubpb.SchemaView_SCHEMA_VIEW_UNSPECIFIED: reading,
	} {
		got, err := t.schemas.GetSchema(t.ctx, &pubsubpb.GetSchemaRequest{Name: name, View: view})
		t.must(err)
		equal(t, "definition in view "+view.String(), got.GetDefinition(), want)
	}
}

func schemaIsParsed(t *trial) {
	for _, definition := range []string{"", "nonsense", `syntax = "proto3"; message Reading { string place = 1; string again = 1; }`} {
		_, err := t.createSchema(t.id, definition)
		t.code("definition "+definition, err, codes.InvalidArgument)
	}
}

func schemaStandsAlone(t *trial) {
	_, err := t.createSchema(t.id, `syntax = "proto3"; import "google/protobuf/timestamp.proto";
		message Reading { google.protobuf.Timestamp at = 1; }`)
	t.code("definition with an import", err, codes.InvalidArgument)
	_, err = t.createSchema(t.id, `syntax = "proto3"; message Reading { string place = 1; } message Other { string place = 1; }`)
	t.code("definition with two messages", err, codes.InvalidArgument)
	t.schema(`syntax = "proto3"; message Reading { message Inner { string a = 1; } Inner inner = 1; }`)
}

func schemaExists(t *trial) {
	name := t.schema(reading).GetName()
	_, err := t.createSchema(name[strings.LastIndexByte(name, '/')+1:], reading)
	t.code("second creation", err, codes.AlreadyExists)
}

func schemaIsValidated(t *trial) {
	validate := func(definition string) error {
		_, err := t.schemas.ValidateSchema(t.ctx, &pubsubpb.ValidateSchemaRequest{
			Parent: "projects/" + t.project, Schema: &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: definition},
		})
		return err
	}
	t.code("good definition", validate(reading), codes.OK)
	t.code("bad definition", validate("nonsense"), codes.InvalidArgument)
}

func messageIsValidated(t *trial) {
	byName := &pubsubpb.ValidateMessageRequest_Name{Name: t.schema(reading).GetName()}
	ad := &pubsubpb.ValidateMessageRequest_Schema{Schema: &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: reading}}
	for _, r := range []*pubsubpb.ValidateMessageRequest{{SchemaSpec: byName}, {SchemaSpec: ad}} {
		r.Parent, r.Encoding = "projects/"+t.project, pubsubpb.Encoding_JSON
		r.Message = []byte(readingJSON)
		_, err := t.schemas.ValidateMessage(t.ctx, r)
		t.code("good message", err, codes.OK)
		r.Message = []byte(colouredJSON)
		_, err = t.schemas.ValidateMessage(t.ctx, r)
		t.code("bad message", err, codes.InvalidArgument)
	}
}

func topicNeedsSchema(t *trial) {
	_, err := t.createTopic(&pubsubpb.Topic{
		Name: t.name("topics"), SchemaSettings: &pubsubpb.SchemaSettings{Schema: t.name("schemas"), Encoding: pubsubpb.Encoding_JSON},
	})
	t.code("creation", err, codes.NotFound)
}

func binaryIsEnforced(t *trial) {
	topic := t.schemaTopic(t.schema(reading).GetName(), pubsubpb.Encoding_BINARY)
	_, err := t.tryPublish(topic, &pubsubpb.PubsubMessage{Data: readingBinary()})
	t.code("message that fits", err, codes.OK)
	_, err = t.tryPublish(topic, text("\xff\xff\xff"))
	t.code("message that does not parse", err, codes.InvalidArgument)
	_, err = t.tryPublish(topic, text(readingJSON))
	t.code("message in the other encoding", err, codes.InvalidArgument)
}

func jsonIsEnforced(t *trial) {
	topic := t.schemaTopic(t.schema(reading).GetName(), pubsubpb.Encoding_JSON)
	_, err := t.tryPublish(topic, text(readingJSON))
	t.code("message that fits", err, codes.OK)
	for what, message := range map[string]string{
		"message with another field": colouredJSON, "message of another type": `{"degrees": "warm"}`, "message that is no JSON": "nonsense",
	} {
		_, err = t.tryPublish(topic, text(message))
		t.code(what, err, codes.InvalidArgument)
	}
}

func messageNamesSchema(t *trial) {
	schema := t.schema(reading)
	topic := t.schemaTopic(schema.GetName(), pubsubpb.Encoding_JSON)
	subscription := t.subscription(topic)
	t.publish(topic, text(readingJSON))
	got := t.stream(subscription).one().GetMessage().GetAttributes()
	equal(t, "attribute googclient_schemaencoding", got["googclient_schemaencoding"], "JSON")
	equal(t, "attribute googclient_schemaname", got["googclient_schemaname"], schema.GetName())
	equal(t, "attribute googclient_schemarevisionid", got["googclient_schemarevisionid"], schema.GetRevisionId())
}

func schemasAreListed(t *trial) {
	const size = 2
	want := []string{t.schema(reading).GetName(), t.schema(reading).GetName(), t.schema(reading).GetName()}
	t.listed(size, want, func(token string) (names []string, next string, err error) {
		response, err := t.schemas.ListSchemas(t.ctx,
			&pubsubpb.ListSchemasRequest{Parent: "projects/" + t.project, PageSize: size, PageToken: token})
		for _, s := range response.GetSchemas() {
			names = append(names, s.GetName())
			equal(t, "definition in a list", s.GetDefinition(), "")
		}
		return names, response.GetNextPageToken(), err
	})
}

func schemaIsDeleted(t *trial) {
	name := t.schema(reading).GetName()
	topic := t.schemaTopic(name, pubsubpb.Encoding_JSON)
	_, err := t.schemas.DeleteSchema(t.ctx, &pubsubpb.DeleteSchemaRequest{Name: name})
	t.must(err)
	equal(t, "schema of the topic", t.getTopic(topic).GetSchemaSettings().GetSchema(), deletedSchema)
	_, err = t.tryPublish(topic, text(readingJSON))
	t.checkf(err != nil, "a message is accepted")
	_, err = t.schemas.GetSchema(t.ctx, &pubsubpb.GetSchemaRequest{Name: name})
	t.code("get", err, codes.NotFound)
}

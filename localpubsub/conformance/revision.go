package conformance

import (
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

func schemaRevisions() area {
	commit := page("commit-schema-revision")
	return area{"schema revisions", []Behaviour{
		{Name: "a committed revision becomes the schema, the former can be read by its id", Source: commit, try: revisionIsCommitted},
		{Name: "a malformed revision is refused", Source: commit, try: revisionIsParsed},
		{Name: "revisions are listed, each once", Source: rpc("ListSchemaRevisionsRequest"), try: revisionsAreListed},
		{Name: "a rollback makes a new revision of an old definition", Source: rpc("RollbackSchemaRequest"), try: revisionIsRolledBack},
		{Name: "a deleted revision is not found", Source: rpc("DeleteSchemaRevisionRequest"), try: revisionIsDeleted},
		{Name: "a message may fit any revision of its topic's schema, and names it", Source: rpc("SchemaSettings"), try: revisionsAreTried},
		{Name: "a message must fit a revision within its topic's bounds", Source: rpc("SchemaSettings"), try: revisionsAreBounded},
	}}
}

func (t *trial) commit(schema, definition string) (*pubsubpb.Schema, error) {
	return t.schemas.CommitSchema(t.ctx, &pubsubpb.CommitSchemaRequest{
		Name: schema, Schema: &pubsubpb.Schema{Name: schema, Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: definition},
	})
}

// revised creates a schema with two revisions.
func (t *trial) revised() (first, second *pubsubpb.Schema) {
	first = t.schema(reading)
	second, err := t.commit(first.GetName(), coloured)
	t.must(err)
	t.checkf(second.GetRevisionId() != first.GetRevisionId(), "both revisions have one id")
	return first, second
}

// definition returns the definition of a schema. If the name has the form NAME@REVISION, it returns
// the definition of that revision.
func (t *trial) definition(name string) string {
	s, err := t.schemas.GetSchema(t.ctx, &pubsubpb.GetSchemaRequest{Name: name, View: pubsubpb.SchemaView_FULL})
	t.must(err)
	return s.GetDefinition()
}

func revisionIsCommitted(t *trial) {
	first, second := t.revised()
	equal(t, "definition of the schema", t.definition(first.GetName()), coloured)
	equal(t, "definition of the first revision", t.definition(first.GetName()+"@"+first.GetRevisionId()), reading)
	equal(t, "definition of the second revision", t.definition(first.GetName()+"@"+second.GetRevisionId()), coloured)
}

func revisionIsParsed(t *trial) {
	_, err := t.commit(t.schema(reading).GetName(), "nonsense")
	t.code("commit", err, codes.InvalidArgument)
}

func revisionsAreListed(t *trial) {
	first, second := t.revised()
	const size = 1
	want := []string{first.GetRevisionId(), second.GetRevisionId()}
	t.listed(size, want, func(token string) (ids []string, next string, err error) {
		response, err := t.schemas.ListSchemaRevisions(t.ctx,
			&pubsubpb.ListSchemaRevisionsRequest{Name: first.GetName(), PageSize: size, PageToken: token})
		for _, s := range response.GetSchemas() {
			ids = append(ids, s.GetRevisionId())
		}
		return ids, response.GetNextPageToken(), err
	})
}

func revisionIsRolledBack(t *trial) {
	first, second := t.revised()
	third, err := t.schemas.RollbackSchema(t.ctx, &pubsubpb.RollbackSchemaRequest{Name: first.GetName(), RevisionId: first.GetRevisionId()})
	t.must(err)
	id := third.GetRevisionId()
	t.checkf(id != first.GetRevisionId() && id != second.GetRevisionId(), "the new revision has an old one's id")
	equal(t, "definition of the schema", t.definition(first.GetName()), reading)
}

func revisionIsDeleted(t *trial) {
	first, _ := t.revised()
	name := first.GetName() + "@" + first.GetRevisionId()
	_, err := t.schemas.DeleteSchemaRevision(t.ctx, &pubsubpb.DeleteSchemaRevisionRequest{Name: name})
	t.must(err)
	_, err = t.schemas.GetSchema(t.ctx, &pubsubpb.GetSchemaRequest{Name: name})
	t.code("get", err, codes.NotFound)
	equal(t, "definition of the schema", t.definition(first.GetName()), coloured)
}

func revisionsAreTried(t *trial) {
	first, second := t.revised()
	topic := t.schemaTopic(first.GetName(), pubsubpb.Encoding_JSON)
	s := t.stream(t.subscription(topic))
	t.publish(topic, text(colouredJSON))
	equal(t, "revision", s.one().GetMessage().GetAttributes()["googclient_schemarevisionid"], second.GetRevisionId())
	_, err := t.tryPublish(topic, text(`{"weight": 1}`))
	t.code("message that fits neither", err, codes.InvalidArgument)
}

func revisionsAreBounded(t *trial) {
	first, _ := t.revised()
	topic := t.topicWith(&pubsubpb.Topic{SchemaSettings: &pubsubpb.SchemaSettings{
		Schema: first.GetName(), Encoding: pubsubpb.Encoding_JSON,
		FirstRevisionId: first.GetRevisionId(), LastRevisionId: first.GetRevisionId(),
	}}).GetName()
	_, err := t.tryPublish(topic, text(readingJSON))
	t.code("message of the allowed revision", err, codes.OK)
	_, err = t.tryPublish(topic, text(colouredJSON))
	t.code("message of a later revision", err, codes.InvalidArgument)
}

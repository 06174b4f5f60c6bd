package schema

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const testProject = "projects/p"

var testTime = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// serveSchemas serves an empty schema service and returns a client of it.
func serveSchemas(t testing.TB) (*Service, *pubsub.SchemaClient) {
	t.Helper()
	s := New(func() time.Time { return testTime })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pubsubpb.RegisterSchemaServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	client, err := pubsub.NewSchemaClient(t.Context(), option.WithEndpoint(listener.Addr().String()), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return s, client
}

func protobuf(definition string) *pubsubpb.Schema {
	return &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: definition}
}

// proto3 is a definition of M with the given fields.
func proto3(fields string) string {
	return `syntax = "proto3"; message M { ` + fields + ` }`
}

func createSchema(t testing.TB, client *pubsub.SchemaClient, id, definition string) *pubsubpb.Schema {
	t.Helper()
	created, err := client.CreateSchema(t.Context(), &pubsubpb.CreateSchemaRequest{Parent: testProject, SchemaId: id, Schema: protobuf(definition)})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func commitSchema(t testing.TB, client *pubsub.SchemaClient, name, definition string) *pubsubpb.Schema {
	t.Helper()
	committed, err := client.CommitSchema(t.Context(), &pubsubpb.CommitSchemaRequest{Name: name, Schema: protobuf(definition)})
	if err != nil {
		t.Fatal(err)
	}
	return committed
}

// wantStatus requires a status with this code and with text in its message. If
// it concerns an argument, its details must name field.
func wantStatus(t testing.TB, err error, code codes.Code, field, text string) {
	t.Helper()
	s, _ := status.FromError(err)
	if s.Code() != code || !strings.Contains(s.Message(), text) {
		t.Errorf("%v, want %v that says %q", err, code, text)
		return
	}
	var fields []string
	for _, detail := range s.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, violation := range bad.GetFieldViolations() {
				fields = append(fields, violation.GetField())
			}
		}
	}
	if field != "" && !slices.Equal(fields, []string{field}) {
		t.Errorf("%v blames %q, want %s", err, fields, field)
	}
}

func TestSchemaLife(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	first := createSchema(t, client, "video", proto3("string a = 1;"))
	want := &pubsubpb.Schema{
		Name: "projects/p/schemas/video", Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: proto3("string a = 1;"),
		RevisionId: first.GetRevisionId(), RevisionCreateTime: timestamppb.New(testTime),
	}
	if diff := cmp.Diff(want, first, protocmp.Transform()); diff != "" || len(first.GetRevisionId()) != 8 {
		t.Errorf("created: %s", diff)
	}
	second := commitSchema(t, client, first.GetName(), proto3("string a = 1; int64 b = 2;"))
	if second.GetName() != first.GetName() || second.GetRevisionId() == first.GetRevisionId() {
		t.Errorf("committed %v after %v", second, first)
	}
	back, err := client.RollbackSchema(t.Context(), &pubsubpb.RollbackSchemaRequest{Name: first.GetName(), RevisionId: first.GetRevisionId()})
	if err != nil || back.GetDefinition() != first.GetDefinition() || back.GetRevisionId() == first.GetRevisionId() {
		t.Errorf("rolled back to %v, %v", back, err)
	}
	if got := revisionsOf(t, client, first.GetName()); !slices.Equal(got, ids(back, second, first)) {
		t.Errorf("revisions %v, want %v", got, ids(back, second, first))
	}
	left, err := client.DeleteSchemaRevision(t.Context(), &pubsubpb.DeleteSchemaRevisionRequest{Name: first.GetName() + "@" + back.GetRevisionId()})
	if err != nil || left.GetRevisionId() != second.GetRevisionId() {
		t.Errorf("left with %v, %v, want %v", left, err, second)
	}
	if err := client.DeleteSchema(t.Context(), &pubsubpb.DeleteSchemaRequest{Name: first.GetName()}); err != nil {
		t.Error(err)
	}
	_, err = client.GetSchema(t.Context(), &pubsubpb.GetSchemaRequest{Name: first.GetName()})
	wantStatus(t, err, codes.NotFound, "", "projects/p/schemas/video")
	if again := createSchema(t, client, "video", proto3("bytes a = 1;")); again.GetRevisionId() == first.GetRevisionId() {
		t.Errorf("made again with the old revision %v", again)
	}
}

func revisionsOf(t testing.TB, client *pubsub.SchemaClient, name string) (found []string) {
	t.Helper()
	all := client.ListSchemaRevisions(t.Context(), &pubsubpb.ListSchemaRevisionsRequest{Name: name, PageSize: 2})
	for {
		revision, err := all.Next()
		if err == iterator.Done { //nolint:errorlint // the iterator's own
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if revision.GetDefinition() != "" || revision.GetType() != pubsubpb.Schema_PROTOCOL_BUFFER {
			t.Errorf("listed %v, want it without a definition", revision)
		}
		found = append(found, revision.GetRevisionId())
	}
}

func ids(schemas ...*pubsubpb.Schema) (all []string) {
	for _, s := range schemas {
		all = append(all, s.GetRevisionId())
	}
	return all
}

func TestGetSchemaViews(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	first := createSchema(t, client, "video", proto3("string a = 1;"))
	second := commitSchema(t, client, first.GetName(), proto3(""))
	for _, c := range []struct {
		name string
		view pubsubpb.SchemaView
		want *pubsubpb.Schema
	}{
		{first.GetName(), pubsubpb.SchemaView_SCHEMA_VIEW_UNSPECIFIED, second},
		{first.GetName(), pubsubpb.SchemaView_FULL, second},
		{first.GetName() + "@" + first.GetRevisionId(), pubsubpb.SchemaView_FULL, first},
	} {
		got, err := client.GetSchema(t.Context(), &pubsubpb.GetSchemaRequest{Name: c.name, View: c.view})
		if diff := cmp.Diff(c.want, got, protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("%s %v: %v %s", c.name, c.view, err, diff)
		}
	}
	got, err := client.GetSchema(t.Context(), &pubsubpb.GetSchemaRequest{Name: first.GetName(), View: pubsubpb.SchemaView_BASIC})
	if err != nil || got.GetDefinition() != "" || got.GetRevisionId() != second.GetRevisionId() {
		t.Errorf("basic: %v, %v", got, err)
	}
}

func TestListSchemasByPages(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	for _, id := range []string{"ccc", "aaa", "bbb"} {
		createSchema(t, client, id, proto3(""))
	}
	other := &pubsubpb.CreateSchemaRequest{Parent: "projects/pp", SchemaId: "other", Schema: protobuf(proto3(""))}
	if _, err := client.CreateSchema(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for view, full := range map[pubsubpb.SchemaView]bool{
		pubsubpb.SchemaView_SCHEMA_VIEW_UNSPECIFIED: false, pubsubpb.SchemaView_BASIC: false, pubsubpb.SchemaView_FULL: true,
	} {
		pages := iterator.NewPager(client.ListSchemas(t.Context(), &pubsubpb.ListSchemasRequest{Parent: testProject, View: view}), 2, "")
		var names []string
		for token := "-"; token != ""; {
			var some []*pubsubpb.Schema
			var err error
			if token, err = pages.NextPage(&some); err != nil {
				t.Fatal(err)
			}
			for _, s := range some {
				names = append(names, s.GetName())
				if (s.GetDefinition() != "") != full {
					t.Errorf("%v: listed %v", view, s)
				}
			}
		}
		if want := []string{"projects/p/schemas/aaa", "projects/p/schemas/bbb", "projects/p/schemas/ccc"}; !slices.Equal(names, want) {
			t.Errorf("listed %v, want %v", names, want)
		}
	}
}

func TestSchemaRefusals(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	ctx := t.Context()
	there := createSchema(t, client, "there", proto3("")).GetName()
	create := func(parent, id string) error {
		_, err := client.CreateSchema(ctx, &pubsubpb.CreateSchemaRequest{Parent: parent, SchemaId: id, Schema: protobuf(proto3(""))})
		return err
	}
	wantStatus(t, create(testProject, "there"), codes.AlreadyExists, "", there)
	wantStatus(t, create("p", "video"), codes.InvalidArgument, "parent", "projects/PROJECT")
	for _, id := range []string{"", "ab", "1ab", "a/b", "a b", "google", "a@b", strings.Repeat("a", 256)} {
		wantStatus(t, create(testProject, id), codes.InvalidArgument, "schema_id", "")
	}
	for _, id := range []string{"abc", "Goo", "a-b_c.d~e+f%20", strings.Repeat("a", 255)} {
		wantStatus(t, create(testProject, id), codes.OK, "", "")
	}
	_, err := client.GetSchema(ctx, &pubsubpb.GetSchemaRequest{Name: there + "@"})
	wantStatus(t, err, codes.InvalidArgument, "name", "revision id")
	_, err = client.GetSchema(ctx, &pubsubpb.GetSchemaRequest{Name: there + "@01234567"})
	wantStatus(t, err, codes.NotFound, "", "@01234567")
	_, err = client.GetSchema(ctx, &pubsubpb.GetSchemaRequest{Name: "there"})
	wantStatus(t, err, codes.InvalidArgument, "name", "projects/PROJECT/schemas/ID")
	_, err = client.GetSchema(ctx, &pubsubpb.GetSchemaRequest{Name: there, View: 9})
	wantStatus(t, err, codes.InvalidArgument, "view", "9")
	_, err = client.ListSchemas(ctx, &pubsubpb.ListSchemasRequest{Parent: "projects/"}).Next()
	wantStatus(t, err, codes.InvalidArgument, "parent", "")
	_, err = client.ListSchemaRevisions(ctx, &pubsubpb.ListSchemaRevisionsRequest{Name: testProject + "/schemas/gone"}).Next()
	wantStatus(t, err, codes.NotFound, "", "gone")
	_, err = client.CommitSchema(ctx, &pubsubpb.CommitSchemaRequest{Name: testProject + "/schemas/gone", Schema: protobuf(proto3(""))})
	wantStatus(t, err, codes.NotFound, "", "gone")
	_, err = client.CommitSchema(ctx, &pubsubpb.CommitSchemaRequest{Name: there})
	wantStatus(t, err, codes.InvalidArgument, "schema", "is needed")
	_, err = client.RollbackSchema(ctx, &pubsubpb.RollbackSchemaRequest{Name: there})
	wantStatus(t, err, codes.InvalidArgument, "revision_id", "is needed")
	_, err = client.RollbackSchema(ctx, &pubsubpb.RollbackSchemaRequest{Name: there, RevisionId: "01234567"})
	wantStatus(t, err, codes.NotFound, "", "@01234567")
	_, err = client.DeleteSchemaRevision(ctx, &pubsubpb.DeleteSchemaRevisionRequest{Name: there})
	wantStatus(t, err, codes.InvalidArgument, "name", "@REVISION")
	_, err = client.DeleteSchemaRevision(ctx, &pubsubpb.DeleteSchemaRevisionRequest{Name: there + "@01234567"})
	wantStatus(t, err, codes.NotFound, "", "@01234567")
	only := there + "@" + revisionsOf(t, client, there)[0]
	_, err = client.DeleteSchemaRevision(ctx, &pubsubpb.DeleteSchemaRevisionRequest{Name: only})
	wantStatus(t, err, codes.FailedPrecondition, "", "delete the schema instead")
	err = client.DeleteSchema(ctx, &pubsubpb.DeleteSchemaRequest{Name: testProject + "/schemas/gone"})
	wantStatus(t, err, codes.NotFound, "", "gone")
	err = client.DeleteSchema(ctx, &pubsubpb.DeleteSchemaRequest{Name: only})
	wantStatus(t, err, codes.InvalidArgument, "name", "")
}

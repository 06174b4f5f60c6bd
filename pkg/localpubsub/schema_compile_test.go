package localpubsub

import (
	"context"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

func TestValidateSchema(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	for name, c := range map[string]struct {
		schema      *pubsubpb.Schema
		code        codes.Code
		field, text string
	}{
		"proto3":            {schema: protobuf(message(`string a = 1; optional int64 b = 2; map<string, bytes> c = 3;`))},
		"proto2":            {schema: protobuf(`syntax = "proto2"; package a.b; message M { required string a = 1; optional group G = 2 {} }`)},
		"proto2, unsaid":    {schema: protobuf(`message M { optional string a = 1; }`)},
		"an edition":        {schema: protobuf(`edition = "2023"; message M { string a = 1; }`)},
		"nested types":      {schema: protobuf(message(`message N { E e = 1; } enum E { A = 0; } repeated N n = 1; M m = 2;`))},
		"file options":      {schema: protobuf(`syntax = "proto3"; option go_package = "x"; message M { string a = 1 [deprecated = true]; }`)},
		"no schema":         {nil, codes.InvalidArgument, "schema", "is needed"},
		"no type":           {&pubsubpb.Schema{Definition: message("")}, codes.InvalidArgument, "schema.type", "TYPE_UNSPECIFIED"},
		"unknown type":      {&pubsubpb.Schema{Type: 9, Definition: message("")}, codes.InvalidArgument, "schema.type", "9"},
		"Avro":              {&pubsubpb.Schema{Type: pubsubpb.Schema_AVRO, Definition: "{}"}, codes.Unimplemented, "", "AVRO"},
		"descriptors":       {&pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Configuration: &pubsubpb.Schema_CompiledProtoSchema{CompiledProtoSchema: &pubsubpb.CompiledProtoSchema{}}}, codes.Unimplemented, "", "schema.definition"},
		"no definition":     {protobuf(""), codes.InvalidArgument, "schema.definition", "is needed"},
		"too long":          {protobuf(message("") + strings.Repeat(" ", maxDefinition)), codes.InvalidArgument, "schema.definition", "at most 300000"},
		"no message":        {protobuf(`syntax = "proto3";`), codes.InvalidArgument, "schema.definition", "one top-level type"},
		"two messages":      {protobuf(message("") + "message N {}"), codes.InvalidArgument, "schema.definition", "one top-level type"},
		"an enum beside":    {protobuf(message("") + "enum E { A = 0; }"), codes.InvalidArgument, "schema.definition", "one top-level type"},
		"an extension":      {protobuf(`syntax = "proto2"; message M { extensions 5; } extend M { optional string x = 5; }`), codes.InvalidArgument, "schema.definition", "one top-level type"},
		"an import":         {protobuf(`syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }`), codes.InvalidArgument, "schema.definition", "cannot import"},
		"an unused import":  {protobuf(`syntax = "proto3"; import "google/protobuf/descriptor.proto"; message M {}`), codes.InvalidArgument, "schema.definition", "cannot import"},
		"itself":            {protobuf(`syntax = "proto3"; import "schema.proto"; message M {}`), codes.InvalidArgument, "schema.definition", ""},
		"no such type":      {protobuf("syntax = \"proto3\";\nmessage M {\n  N n = 1;\n}"), codes.InvalidArgument, "schema.definition", "schema.proto:3:3"},
		"a number twice":    {protobuf(message("string a = 1; string b = 1;")), codes.InvalidArgument, "schema.definition", "schema.proto:1"},
		"no protobuf":       {protobuf(`{"type": "record"}`), codes.InvalidArgument, "schema.definition", "Invalid schema definition"},
		"deeper than sense": {protobuf(strings.Repeat("message M {", 5000)), codes.InvalidArgument, "schema.definition", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.ValidateSchema(t.Context(), &pubsubpb.ValidateSchemaRequest{Parent: testProject, Schema: c.schema})
			wantStatus(t, err, c.code, c.field, c.text)
		})
	}
}

func TestValidateSchemaOfNoProject(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	_, err := client.ValidateSchema(t.Context(), &pubsubpb.ValidateSchemaRequest{Schema: protobuf(message(""))})
	wantStatus(t, err, codes.InvalidArgument, "parent", "")
}

func TestCompileEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := compileSchema(ctx, protobuf(message("")))
	wantStatus(t, err, codes.Canceled, "", "")
}

func TestCompatibility(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after, text string }{
		"the same":          {message("string a = 1;"), message("string a = 1;"), ""},
		"a field more":      {message("string a = 1;"), message("string a = 1; int64 b = 2; optional M c = 3;"), ""},
		"a field less":      {message("string a = 1; int64 b = 2;"), message("string a = 1;"), ""},
		"other order":       {message("string a = 1; int64 b = 2;"), message("int64 b = 2; string a = 1;"), ""},
		"a comment":         {message("string a = 1;"), "// hello\n" + message("string a = 1;"), ""},
		"another package":   {message("M a = 1;"), `syntax = "proto3"; package p; message M { M a = 1; }`, ""},
		"in a oneof":        {message("oneof o { string a = 1; }"), message("oneof o { string a = 1; string b = 2; }"), ""},
		"nested, more":      {message("message N {} N n = 1;"), message("message N { string a = 1; } N n = 1;"), ""},
		"an enum, new":      {message(""), message("enum E { A = 0; } E e = 1;"), ""},
		"reserved":          {message("string a = 1;"), message("reserved 1;"), ""},
		"another type":      {message("int64 a = 1;"), message("string a = 1;"), "M.a: its type was int64, and is string"},
		"a wider type":      {message("int32 a = 1;"), message("int64 a = 1;"), "its type was int32"},
		"another name":      {message("string a = 1;"), message("string b = 1;"), "its name was a, and is b"},
		"another JSON name": {message("string a = 1;"), message(`string a = 1 [json_name = "b"];`), "its JSON name"},
		"another number":    {message("string a = 1;"), message("string a = 2;"), "M.a has number 2 and 1"},
		"repeated now":      {message("string a = 1;"), message("repeated string a = 1;"), "its label was optional, and is repeated"},
		"presence now":      {message("string a = 1;"), message("optional string a = 1;"), "its explicit presence"},
		"in a oneof now":    {message("optional string a = 1;"), message("oneof o { string a = 1; }"), "its oneof"},
		"a list more":       {message(""), message("repeated string a = 1;"), "M.a is repeated; only optional fields may be added or removed"},
		"a list less":       {message("repeated string a = 1;"), message(""), "M.a is repeated"},
		"a map more":        {message(""), message("map<string, string> a = 1;"), "M.a is repeated"},
		"required, more":    {"message M {}", "message M { required string a = 1; }", "M.a is required"},
		"required, less":    {"message M { required string a = 1; }", "message M {}", "M.a is required"},
		"a map's value":     {message("map<string, string> a = 1;"), message("map<string, bytes> a = 1;"), "its type was string"},
		"an enum's value":   {message("enum E { A = 0; } E e = 1;"), message("enum E { A = 0; B = 1; } E e = 1;"), "B = 1 is missing"},
		"an enum's loss":    {message("enum E { A = 0; B = 1; } E e = 1;"), message("enum E { A = 0; } E e = 1;"), "B = 1 is missing"},
		"an enum's number":  {message("enum E { A = 0; B = 1; } E e = 1;"), message("enum E { A = 0; B = 2; } E e = 1;"), "B = 1 is missing"},
		"another enum":      {message("enum E { A = 0; } E e = 1;"), message("enum F { A = 0; } F e = 1;"), "its type was M.E, and is M.F"},
		"another message":   {message("message N {} N n = 1;"), message("message O {} O n = 1;"), "its type was M.N, and is M.O"},
		"nested, edited":    {message("message N { M m = 1; int32 a = 2; } N n = 1;"), message("message N { M m = 1; bool a = 2; } N n = 1;"), "M.n: M.N.a: its type was int32"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client := serveSchemas(t)
			first := createSchema(t, client, "video", c.before)
			_, err := client.CommitSchema(t.Context(), &pubsubpb.CommitSchemaRequest{Name: first.GetName(), Schema: protobuf(c.after)})
			if c.text == "" {
				wantStatus(t, err, codes.OK, "", "")
				return
			}
			wantStatus(t, err, codes.InvalidArgument, "schema.definition", "Revision is incompatible with previous revision: "+first.GetRevisionId())
			wantStatus(t, err, codes.InvalidArgument, "schema.definition", c.text)
			if n := len(revisionsOf(t, client, first.GetName())); n != 1 {
				t.Errorf("%d revisions", n)
			}
		})
	}
}

// TestCompatibleWithAll takes up a number that an older revision had given away.
func TestCompatibleWithAll(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	first := createSchema(t, client, "video", message("string a = 1;"))
	commitSchema(t, client, first.GetName(), message(""))
	reused := &pubsubpb.CommitSchemaRequest{Name: first.GetName(), Schema: protobuf(message("int64 b = 1;"))}
	_, err := client.CommitSchema(t.Context(), reused)
	wantStatus(t, err, codes.InvalidArgument, "schema.definition", first.GetRevisionId())
	if _, err := client.DeleteSchemaRevision(t.Context(), &pubsubpb.DeleteSchemaRevisionRequest{Name: first.GetName() + "@" + first.GetRevisionId()}); err != nil {
		t.Fatal(err)
	}
	_, err = client.CommitSchema(t.Context(), reused)
	wantStatus(t, err, codes.OK, "", "")
}

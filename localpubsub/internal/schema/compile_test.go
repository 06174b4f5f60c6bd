package schema

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
		"proto3":            {schema: protobuf(proto3(`string a = 1; optional int64 b = 2; map<string, bytes> c = 3;`))},
		"proto2":            {schema: protobuf(`syntax = "proto2"; package a.b; message M { required string a = 1; optional group G = 2 {} }`)},
		"proto2, unsaid":    {schema: protobuf(`message M { optional string a = 1; }`)},
		"an edition":        {schema: protobuf(`edition = "2023"; message M { string a = 1; }`)},
		"nested types":      {schema: protobuf(proto3(`message N { E e = 1; } enum E { A = 0; } repeated N n = 1; M m = 2;`))},
		"file options":      {schema: protobuf(`syntax = "proto3"; option go_package = "x"; message M { string a = 1 [deprecated = true]; }`)},
		"no schema":         {nil, codes.InvalidArgument, "schema", "is needed"},
		"no type":           {&pubsubpb.Schema{Definition: proto3("")}, codes.InvalidArgument, "schema.type", "TYPE_UNSPECIFIED"},
		"unknown type":      {&pubsubpb.Schema{Type: 9, Definition: proto3("")}, codes.InvalidArgument, "schema.type", "9"},
		"Avro":              {&pubsubpb.Schema{Type: pubsubpb.Schema_AVRO, Definition: "{}"}, codes.Unimplemented, "", "AVRO"},
		"descriptors":       {&pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Configuration: &pubsubpb.Schema_CompiledProtoSchema{CompiledProtoSchema: &pubsubpb.CompiledProtoSchema{}}}, codes.Unimplemented, "", "schema.definition"},
		"no definition":     {protobuf(""), codes.InvalidArgument, "schema.definition", "is needed"},
		"too long":          {protobuf(proto3("") + strings.Repeat(" ", maxDefinition)), codes.InvalidArgument, "schema.definition", "at most 300000"},
		"no message":        {protobuf(`syntax = "proto3";`), codes.InvalidArgument, "schema.definition", "one top-level type"},
		"two messages":      {protobuf(proto3("") + "message N {}"), codes.InvalidArgument, "schema.definition", "one top-level type"},
		"an enum as well":   {protobuf(proto3("") + "enum E { A = 0; }"), codes.InvalidArgument, "schema.definition", "one top-level type"},
		"an extension":      {protobuf(`syntax = "proto2"; message M { extensions 5; } extend M { optional string x = 5; }`), codes.InvalidArgument, "schema.definition", "one top-level type"},
		"an import":         {protobuf(`syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M { google.protobuf.Timestamp t = 1; }`), codes.InvalidArgument, "schema.definition", "cannot import"},
		"an unused import":  {protobuf(`syntax = "proto3"; import "google/protobuf/descriptor.proto"; message M {}`), codes.InvalidArgument, "schema.definition", "cannot import"},
		"itself":            {protobuf(`syntax = "proto3"; import "schema.proto"; message M {}`), codes.InvalidArgument, "schema.definition", ""},
		"no such type":      {protobuf("syntax = \"proto3\";\nmessage M {\n  N n = 1;\n}"), codes.InvalidArgument, "schema.definition", "schema.proto:3:3"},
		"a number twice":    {protobuf(proto3("string a = 1; string b = 1;")), codes.InvalidArgument, "schema.definition", "schema.proto:1"},
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
	_, err := client.ValidateSchema(t.Context(), &pubsubpb.ValidateSchemaRequest{Schema: protobuf(proto3(""))})
	wantStatus(t, err, codes.InvalidArgument, "parent", "")
}

func TestCompileEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := compileRevision(ctx, protobuf(proto3("")))
	wantStatus(t, err, codes.Canceled, "", "")
}

func TestCompatibility(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, after, text string }{
		"the same":          {proto3("string a = 1;"), proto3("string a = 1;"), ""},
		"a field more":      {proto3("string a = 1;"), proto3("string a = 1; int64 b = 2; optional M c = 3;"), ""},
		"a field less":      {proto3("string a = 1; int64 b = 2;"), proto3("string a = 1;"), ""},
		"other order":       {proto3("string a = 1; int64 b = 2;"), proto3("int64 b = 2; string a = 1;"), ""},
		"a comment":         {proto3("string a = 1;"), "// hello\n" + proto3("string a = 1;"), ""},
		"another package":   {proto3("M a = 1;"), `syntax = "proto3"; package p; message M { M a = 1; }`, ""},
		"in a oneof":        {proto3("oneof o { string a = 1; }"), proto3("oneof o { string a = 1; string b = 2; }"), ""},
		"nested, more":      {proto3("message N {} N n = 1;"), proto3("message N { string a = 1; } N n = 1;"), ""},
		"an enum, new":      {proto3(""), proto3("enum E { A = 0; } E e = 1;"), ""},
		"reserved":          {proto3("string a = 1;"), proto3("reserved 1;"), ""},
		"another type":      {proto3("int64 a = 1;"), proto3("string a = 1;"), "M.a: its type was int64, and is string"},
		"a wider type":      {proto3("int32 a = 1;"), proto3("int64 a = 1;"), "its type was int32"},
		"another name":      {proto3("string a = 1;"), proto3("string b = 1;"), "its name was a, and is b"},
		"another JSON name": {proto3("string a = 1;"), proto3(`string a = 1 [json_name = "b"];`), "its JSON name"},
		"another number":    {proto3("string a = 1;"), proto3("string a = 2;"), "M.a has number 2 and 1"},
		"repeated now":      {proto3("string a = 1;"), proto3("repeated string a = 1;"), "its label was optional, and is repeated"},
		"presence now":      {proto3("string a = 1;"), proto3("optional string a = 1;"), "its explicit presence"},
		"in a oneof now":    {proto3("optional string a = 1;"), proto3("oneof o { string a = 1; }"), "its oneof"},
		"a list more":       {proto3(""), proto3("repeated string a = 1;"), "M.a is repeated; only optional fields may be added or removed"},
		"a list less":       {proto3("repeated string a = 1;"), proto3(""), "M.a is repeated"},
		"a map more":        {proto3(""), proto3("map<string, string> a = 1;"), "M.a is repeated"},
		"required, more":    {"message M {}", "message M { required string a = 1; }", "M.a is required"},
		"required, less":    {"message M { required string a = 1; }", "message M {}", "M.a is required"},
		"a map's value":     {proto3("map<string, string> a = 1;"), proto3("map<string, bytes> a = 1;"), "its type was string"},
		"an enum's value":   {proto3("enum E { A = 0; } E e = 1;"), proto3("enum E { A = 0; B = 1; } E e = 1;"), "B = 1 is missing"},
		"an enum's loss":    {proto3("enum E { A = 0; B = 1; } E e = 1;"), proto3("enum E { A = 0; } E e = 1;"), "B = 1 is missing"},
		"an enum's number":  {proto3("enum E { A = 0; B = 1; } E e = 1;"), proto3("enum E { A = 0; B = 2; } E e = 1;"), "B = 1 is missing"},
		"another enum":      {proto3("enum E { A = 0; } E e = 1;"), proto3("enum F { A = 0; } F e = 1;"), "its type was M.E, and is M.F"},
		"another message":   {proto3("message N {} N n = 1;"), proto3("message O {} O n = 1;"), "its type was M.N, and is M.O"},
		"nested, edited":    {proto3("message N { M m = 1; int32 a = 2; } N n = 1;"), proto3("message N { M m = 1; bool a = 2; } N n = 1;"), "M.n: M.N.a: its type was int32"},
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

// TestCompatibleWithAll reuses a field number that only an older revision has.
func TestCompatibleWithAll(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	first := createSchema(t, client, "video", proto3("string a = 1;"))
	commitSchema(t, client, first.GetName(), proto3(""))
	reused := &pubsubpb.CommitSchemaRequest{Name: first.GetName(), Schema: protobuf(proto3("int64 b = 1;"))}
	_, err := client.CommitSchema(t.Context(), reused)
	wantStatus(t, err, codes.InvalidArgument, "schema.definition", first.GetRevisionId())
	if _, err := client.DeleteSchemaRevision(t.Context(), &pubsubpb.DeleteSchemaRevisionRequest{Name: first.GetName() + "@" + first.GetRevisionId()}); err != nil {
		t.Fatal(err)
	}
	_, err = client.CommitSchema(t.Context(), reused)
	wantStatus(t, err, codes.OK, "", "")
}

// FuzzSchema shows that no definition makes the server panic, and that an
// accepted definition is compatible with itself and can validate messages.
func FuzzSchema(f *testing.F) {
	for _, definition := range []string{
		judged, judged2, proto3("oneof o { string a = 1; M b = 2; } reserved 3 to 5;"), `edition = "2023"; message M { M m = 1 [features.message_encoding = DELIMITED]; }`,
		`message M { extensions 4 to max; extend M { optional M m = 4; } }`, `message M { optional bytes b = 1 [default = "\xff"]; } service S { rpc R(M) returns (stream M); }`,
	} {
		f.Add(definition)
	}
	f.Fuzz(func(t *testing.T, definition string) {
		unnamed, err := compileRevision(t.Context(), protobuf(definition))
		if err != nil {
			return
		}
		if err := (history{unnamed}).accept(unnamed); err != nil {
			t.Errorf("incompatible with itself: %v", err)
		}
		for _, data := range []string{"", "\x0a\x01x", `{}`} {
			_, _ = unnamed.judge(pubsubpb.Encoding_BINARY, []byte(data))
			_, _ = unnamed.judge(pubsubpb.Encoding_JSON, []byte(data))
		}
	})
}

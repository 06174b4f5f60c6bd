package schema

import (
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
)

const judged = `syntax = "proto3"; message M {
	string s = 1; int32 i = 2; repeated N n = 3; map<string, N> m = 4; E e = 5; repeated int32 packed = 6; N one = 7; int64 video_id = 8;
	message N { string s = 1; N n = 2; }
	enum E { ZERO = 0; ONE = 1; }
}`

const judged2 = `syntax = "proto2"; message M { required string s = 1; optional E e = 2; repeated E es = 3 [packed = true]; map<int32, E> em = 4; enum E { Z = 0; A = 1; } extensions 100; }`

func TestValidateMessage(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	binary, json := pubsubpb.Encoding_BINARY, pubsubpb.Encoding_JSON
	for name, c := range map[string]struct {
		definition string
		encoding   pubsubpb.Encoding
		data, text string
	}{
		"empty":                  {judged, binary, "", ""},
		"a string":               {judged, binary, "\x0a\x02hi", ""},
		"all fields":             {judged, binary, "\x0a\x00\x10\x01\x1a\x03\x0a\x01x\x22\x07\x0a\x01k\x12\x02\x0a\x00\x28\x01\x32\x02\x01\x02\x3a\x02\x12\x00", ""},
		"not packed":             {judged, binary, "\x30\x01\x30\x02", ""},
		"an unlisted open enum":  {judged, binary, "\x28\x07", ""},
		"a field twice":          {judged, binary, "\x10\x01\x10\x02", ""},
		"unknown field":          {judged, binary, "\x0a\x00\x78\x01", "M has no field of number 15"},
		"unknown in a message":   {judged, binary, "\x3a\x02\x78\x01", "M.N has no field of number 15"},
		"unknown, deeper":        {judged, binary, "\x3a\x04\x12\x02\x78\x01", "M.N has no field of number 15"},
		"unknown in a list":      {judged, binary, "\x1a\x00\x1a\x02\x78\x01", "M.N has no field of number 15"},
		"unknown in a map":       {judged, binary, "\x22\x07\x0a\x01k\x12\x02\x78\x01", "M.N has no field of number 15"},
		"another wire type":      {judged, binary, "\x08\x01", "M has no field of number 1 and this wire type"},
		"cut off":                {judged, binary, "\x0a\x05hi", "invalid wire-format"},
		"a varint without end":   {judged, binary, "\xff\xff\xff\xff", "invalid wire-format"},
		"garbage behind":         {judged, binary, "\x0a\x02hi\xff", "invalid wire-format"},
		"zeros behind":           {judged, binary, "\x0a\x02hi\x00\x00", "invalid"},
		"text":                   {judged, binary, "hello", "M"},
		"not UTF-8":              {judged, binary, "\x0a\x01\xff", "UTF-8"},
		"required":               {judged2, binary, "\x0a\x00\x10\x01", ""},
		"required, missing":      {judged2, binary, "\x10\x01", "required"},
		"unlisted closed enum":   {judged2, binary, "\x0a\x00\x10\x07", "M.e: 7 is no value of M.E"},
		"closed enums":           {judged2, binary, "\x0a\x00\x1a\x02\x01\x01\x22\x04\x08\x01\x10\x01", ""},
		"unlisted, in a list":    {judged2, binary, "\x0a\x00\x1a\x02\x01\x07", "M.es: 7 is no value of M.E"},
		"unlisted, in a map":     {judged2, binary, "\x0a\x00\x22\x04\x08\x01\x10\x07", "7 is no value of M.E"},
		"an extension":           {judged2, binary, "\x0a\x00\xa0\x06\x01", "no field of number 100"},
		"JSON":                   {judged, json, `{"s": "hi", "i": 1, "n": [{"s": "x"}], "m": {"k": {}}, "e": "ONE"}`, ""},
		"JSON, empty object":     {judged, json, ` {} `, ""},
		"JSON names":             {judged, json, `{"videoId": "12"}`, ""},
		"proto names":            {judged, json, `{"video_id": 12}`, ""},
		"an enum's number":       {judged, json, `{"e": 7}`, ""},
		"null":                   {judged, json, `{"s": null}`, ""},
		"JSON, unknown field":    {judged, json, `{"x": 1}`, `unknown field "x"`},
		"JSON, unknown deeper":   {judged, json, `{"one": {"x": 1}}`, `unknown field "x"`},
		"JSON, unknown enum":     {judged, json, `{"e": "TWO"}`, "TWO"},
		"JSON, another type":     {judged, json, `{"s": 1}`, "string"},
		"JSON, too large":        {judged, json, `{"i": 2147483648}`, "int32"},
		"JSON, behind":           {judged, json, `{} {}`, "unexpected token {"},
		"JSON, a key twice":      {judged, json, `{"i": 1, "i": 2}`, "duplicate"},
		"JSON, cut off":          {judged, json, `{"s": "hi"`, "EOF"},
		"JSON, nothing":          {judged, json, ``, "unexpected token"},
		"JSON, an array":         {judged, json, `[]`, "unexpected token ["},
		"JSON, required missing": {judged2, json, `{}`, "required"},
		"binary as JSON":         {judged, json, "\x0a\x02hi", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.ValidateMessage(t.Context(), &pubsubpb.ValidateMessageRequest{
				Parent: testProject, SchemaSpec: &pubsubpb.ValidateMessageRequest_Schema{Schema: protobuf(c.definition)},
				Encoding: c.encoding, Message: []byte(c.data),
			})
			if c.text == "" && name != "binary as JSON" {
				wantStatus(t, err, codes.OK, "", "")
				return
			}
			wantStatus(t, err, codes.InvalidArgument, "message", "Message failed schema validation")
			wantStatus(t, err, codes.InvalidArgument, "message", c.text)
		})
	}
}

func TestValidateMessageByName(t *testing.T) {
	t.Parallel()
	_, client := serveSchemas(t)
	first := createSchema(t, client, "video", proto3("string a = 1;"))
	commitSchema(t, client, first.GetName(), proto3(""))
	validate := func(change func(*pubsubpb.ValidateMessageRequest)) error {
		req := &pubsubpb.ValidateMessageRequest{
			Parent: testProject, SchemaSpec: &pubsubpb.ValidateMessageRequest_Name{Name: first.GetName()},
			Encoding: pubsubpb.Encoding_JSON, Message: []byte(`{"a": ""}`),
		}
		change(req)
		_, err := client.ValidateMessage(t.Context(), req)
		return err
	}
	named := func(name string) func(*pubsubpb.ValidateMessageRequest) {
		return func(req *pubsubpb.ValidateMessageRequest) {
			req.SchemaSpec = &pubsubpb.ValidateMessageRequest_Name{Name: name}
		}
	}
	wantStatus(t, validate(func(*pubsubpb.ValidateMessageRequest) {}), codes.InvalidArgument, "message", "unknown field")
	wantStatus(t, validate(named(first.GetName()+"@"+first.GetRevisionId())), codes.OK, "", "")
	wantStatus(t, validate(named(first.GetName()+"@01234567")), codes.NotFound, "", "01234567")
	wantStatus(t, validate(named(testProject+"/schemas/gone")), codes.NotFound, "", "gone")
	wantStatus(t, validate(named("gone")), codes.InvalidArgument, "name", "")
	wantStatus(t, validate(func(req *pubsubpb.ValidateMessageRequest) { req.SchemaSpec = nil }), codes.InvalidArgument, "schema_spec", "needed")
	wantStatus(t, validate(func(req *pubsubpb.ValidateMessageRequest) { req.Encoding = 0 }), codes.InvalidArgument, "encoding", "UNSPECIFIED")
	wantStatus(t, validate(func(req *pubsubpb.ValidateMessageRequest) { req.Parent = "" }), codes.InvalidArgument, "parent", "")
}

// TestCheck publishes with ranges of revisions: revision 0 has field a, 1 has a
// and b, 2 has b, 3 has neither.
func TestCheck(t *testing.T) {
	t.Parallel()
	s, client := serveSchemas(t)
	a := createSchema(t, client, "video", proto3("string a = 1;"))
	ab := commitSchema(t, client, a.GetName(), proto3("string a = 1; string b = 2;"))
	b := commitSchema(t, client, a.GetName(), proto3("string b = 2;"))
	none := commitSchema(t, client, a.GetName(), proto3(""))
	rev := map[string]*pubsubpb.Schema{"a": a, "ab": ab, "b": b, "none": none, "": {}, "?": {RevisionId: "unknown"}}
	check := func(t *testing.T, first, last, data, want, text string) {
		t.Helper()
		settings := &pubsubpb.SchemaSettings{
			Schema: a.GetName(), Encoding: pubsubpb.Encoding_BINARY,
			FirstRevisionId: rev[first].GetRevisionId(), LastRevisionId: rev[last].GetRevisionId(),
		}
		attributes, err := s.Check(settings, []byte(data))
		if want == "" {
			wantStatus(t, err, codes.InvalidArgument, "messages", text)
			return
		}
		if got := attributes["googclient_schemarevisionid"]; err != nil || got != rev[want].GetRevisionId() {
			t.Errorf("%s to %s: %q, %v, want that of %s", first, last, got, err, want)
		}
	}
	const hasA, hasB, hasBoth = "\x0a\x01x", "\x12\x01x", "\x0a\x01x\x12\x01x"
	check(t, "", "", "", "none", "")
	check(t, "", "", hasB, "b", "")
	check(t, "", "", hasA, "ab", "")
	check(t, "", "", hasBoth, "ab", "")
	check(t, "", "a", hasA, "a", "")
	check(t, "", "a", hasB, "", "revision "+a.GetRevisionId()+": M has no field of number 2")
	check(t, "b", "", hasA, "", "revision "+none.GetRevisionId()+": M has no field of number 1")
	check(t, "ab", "b", "", "b", "")
	check(t, "ab", "ab", hasB, "ab", "")
	check(t, "b", "a", "", "", "no revision")
	check(t, "", "?", "", "", "no revision")
	check(t, "?", "a", hasA, "a", "")

	// A deleted revision is skipped; at an end of the range, its neighbour
	// takes its place.
	for _, id := range []string{a.GetRevisionId(), b.GetRevisionId(), none.GetRevisionId()} {
		if _, err := client.DeleteSchemaRevision(t.Context(), &pubsubpb.DeleteSchemaRevisionRequest{Name: a.GetName() + "@" + id}); err != nil {
			t.Fatal(err)
		}
	}
	check(t, "", "", "", "ab", "")
	check(t, "a", "none", hasA, "ab", "")
	check(t, "ab", "b", hasB, "ab", "")
	check(t, "b", "none", hasB, "", "no revision")
}

func TestCheckAddsAttributes(t *testing.T) {
	t.Parallel()
	s, client := serveSchemas(t)
	created := createSchema(t, client, "video", proto3("string a = 1;"))
	for encoding, data := range map[pubsubpb.Encoding]string{pubsubpb.Encoding_BINARY: "\x0a\x01x", pubsubpb.Encoding_JSON: `{"a": "x"}`} {
		got, err := s.Check(&pubsubpb.SchemaSettings{Schema: created.GetName(), Encoding: encoding}, []byte(data))
		want := map[string]string{
			"googclient_schemaname": "projects/p/schemas/video", "googclient_schemaencoding": encoding.String(),
			"googclient_schemarevisionid": created.GetRevisionId(),
		}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v: %v %s", encoding, err, diff)
		}
	}
	_, err := s.Check(&pubsubpb.SchemaSettings{Schema: created.GetName()}, nil)
	wantStatus(t, err, codes.InvalidArgument, "messages", "no encoding")
	if err := client.DeleteSchema(t.Context(), &pubsubpb.DeleteSchemaRequest{Name: created.GetName()}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{created.GetName(), "_deleted-schema_", ""} {
		_, err = s.Check(&pubsubpb.SchemaSettings{Schema: name, Encoding: pubsubpb.Encoding_BINARY}, nil)
		wantStatus(t, err, codes.NotFound, "", name)
	}
}

func TestCheckSettings(t *testing.T) {
	t.Parallel()
	s, client := serveSchemas(t)
	first := createSchema(t, client, "video", proto3(""))
	second := commitSchema(t, client, first.GetName(), proto3(""))
	gone := commitSchema(t, client, first.GetName(), proto3(""))
	if _, err := client.DeleteSchemaRevision(t.Context(), &pubsubpb.DeleteSchemaRevisionRequest{Name: first.GetName() + "@" + gone.GetRevisionId()}); err != nil {
		t.Fatal(err)
	}
	const binary = pubsubpb.Encoding_BINARY
	for _, c := range []struct {
		name        string
		encoding    pubsubpb.Encoding
		first, last string
		code        codes.Code
		field       string
	}{
		{first.GetName(), binary, "", "", codes.OK, ""},
		{first.GetName(), pubsubpb.Encoding_JSON, first.GetRevisionId(), second.GetRevisionId(), codes.OK, ""},
		{first.GetName(), binary, second.GetRevisionId(), second.GetRevisionId(), codes.OK, ""},
		{first.GetName(), binary, second.GetRevisionId(), first.GetRevisionId(), codes.InvalidArgument, "schema_settings.first_revision_id"},
		{first.GetName(), binary, "01234567", "", codes.NotFound, ""},
		{first.GetName(), binary, "", "01234567", codes.NotFound, ""},
		{first.GetName(), binary, "", gone.GetRevisionId(), codes.NotFound, ""},
		{first.GetName(), 0, "", "", codes.InvalidArgument, "schema_settings.encoding"},
		{testProject + "/schemas/gone", binary, "", "", codes.NotFound, ""},
		{"video", binary, "", "", codes.InvalidArgument, "schema_settings.schema"},
		{"", binary, "", "", codes.InvalidArgument, "schema_settings.schema"},
	} {
		err := s.CheckSettings(&pubsubpb.SchemaSettings{Schema: c.name, Encoding: c.encoding, FirstRevisionId: c.first, LastRevisionId: c.last})
		wantStatus(t, err, c.code, c.field, "")
	}
}

// FuzzMessage shows that no data makes the validation panic.
func FuzzMessage(f *testing.F) {
	unnamed, err := compileRevision(f.Context(), protobuf(judged))
	if err != nil {
		f.Fatal(err)
	}
	for _, data := range []string{"", "\x0a\x02hi", "\x22\x07\x0a\x01k\x12\x02\x78\x01", "\x1b\x1c", `{"m": {"k": {"n": null}}}`, `{"one":`} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(_ *testing.T, data []byte) {
		for _, encoding := range []pubsubpb.Encoding{pubsubpb.Encoding_BINARY, pubsubpb.Encoding_JSON} {
			_, _ = unnamed.judge(encoding, data)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	s, client := serveSchemas(b)
	flat := proto3("string title = 1; string description = 2; int64 at = 3; repeated string tags = 4; N n = 5; message N { string a = 1; int64 b = 2; }")
	name := createSchema(b, client, "video", flat).GetName()
	data := "\x0a\x10" + strings.Repeat("t", 16) + "\x12\xcc\x06" + strings.Repeat("d", 6*128+76) + "\x18\x80\xa0\x80\xe0\x01" +
		strings.Repeat("\x22\x08abcdefgh", 12) + "\x2a\x0c\x0a\x08abcdefgh\x10\x05"
	settings := &pubsubpb.SchemaSettings{Schema: name, Encoding: pubsubpb.Encoding_BINARY}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Check(settings, []byte(data)); err != nil {
			b.Fatal(err)
		}
	}
}

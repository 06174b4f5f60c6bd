package rest_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
)

type inner struct {
	Name string `json:"name"`
}

type input struct {
	Title       string                   `json:"title"`
	Seconds     int64                    `json:"duration_seconds"`
	Published   *time.Time               `json:"published_at"`
	Items       []inner                  `json:"items"`
	Note        rest.Optional[string]    `json:"note"`
	Archived    rest.Optional[time.Time] `json:"archived_at"`
	Description rest.Optional[string]    `json:"description"`
	Untagged    bool
	Hidden      string `json:"-"`
}

const maxBody = 2000

func decodeJSON(contentType, body string, into any, mediaTypes ...string) error {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	return rest.DecodeJSON(httptest.NewRecorder(), r, maxBody, into, mediaTypes...)
}

func TestDecodeJSONFillsTheTarget(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var got input
	body := ` {"title":"é \ud83d\ude00 \\\\ud83d","duration_seconds":9007199254740993,"published_at":"2026-11-20T12:00:00Z",
		"items":[{"name":"a"},null],"note":null,"archived_at":"2026-11-20T12:00:00Z","Untagged":true} `
	if err := decodeJSON("application/json; charset=utf-8", body, &got); err != nil {
		t.Fatal(err)
	}
	want := input{
		Title: `é 😀 \\ud83d`, Seconds: 9007199254740993, Published: &at, Items: []inner{{Name: "a"}, {}}, Untagged: true,
		Note:     rest.Optional[string]{Set: true, Null: true},
		Archived: rest.Optional[time.Time]{Set: true, Value: at},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestDecodeJSONNamesEveryBadField(t *testing.T) {
	t.Parallel()
	for body, want := range map[string][]string{
		``:                              {"body"},
		` `:                             {"body"},
		`{"title":`:                     {"body"},
		`{"title":"a"} {}`:              {"body"},
		`{"title":"a"}]`:                {"body"},
		"{\"title\":\"\xff\"}":          {"body"},
		`{"title":"\ud83d"}`:            {"title"},
		`{"title":"\uDE00"}`:            {"title"},
		`{"title":"\uD83D\u0041"}`:      {"title"},
		`{"note":"\"\uD83D\uD83D"}`:     {"note"},
		`{"note":"\uD83D\n\uDE00"}`:     {"note"},
		`{"note":"\ud83d\ude00\ude00"}`: {"note"},
		`[]`:                            {"body"},
		`"text"`:                        {"body"},
		` null `:                        {"body"},
		`{"titel":"a"}`:                 {"titel"},
		`{"Title":"a"}`:                 {"Title"},
		`{"Hidden":"a","-":""}`:         {"Hidden", "-"},
		`{"title":1}`:                   {"title"},
		`{"title":"a","title":""}`:      {"title"},
		`{"duration_seconds":1.5}`:      {"duration_seconds"},
		`{"duration_seconds":99999999999999999999}`: {"duration_seconds"},
		`{"duration_seconds":"1"}`:                  {"duration_seconds"},
		`{"published_at":"yesterday"}`:              {"published_at"},
		`{"published_at":1}`:                        {"published_at"},
		`{"archived_at":{"Value":{}}}`:              {"archived_at"},
		`{"published_at":{}}`:                       {"published_at"},
		`{"items":{}}`:                              {"items"},
		`{"items":[{"name":"a"},{"name":2,"x":0}]}`: {"items[1].name", "items[1].x"},
		`{"note":7,"archived_at":"x","z":0}`:        {"note", "archived_at", "z"},
		`{"a":0,"b":{"c":[]},"title":true}`:         {"a", "b", "title"},
	} {
		err := decodeJSON("application/json", body, &input{})
		var p *problem.Error
		if !errors.As(err, &p) || p.Code != problem.CodeInvalid {
			t.Errorf("%q: %v, want an invalid argument", body, err)
			continue
		}
		if diff := cmp.Diff(want, names(p)); diff != "" {
			t.Errorf("%q: fields (-want +got):\n%s", body, diff)
		}
	}
}

func TestDecodeJSONSaysWhatAFieldMustBe(t *testing.T) {
	t.Parallel()
	err := decodeJSON("application/json", `{"title":1,"duration_seconds":"x","archived_at":3,"Untagged":0,"items":1}`, &input{})
	want := []problem.Field{
		{Field: "title", Detail: "must be a string"},
		{Field: "duration_seconds", Detail: "must be an integer of at most 64 bits"},
		{Field: "archived_at", Detail: "must be a time as in RFC 3339"},
		{Field: "Untagged", Detail: "must be true or false"},
		{Field: "items", Detail: "must be an array"},
	}
	if diff := cmp.Diff(want, problem.From(err).Fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestDecodeJSONCountsBeforeItDecodes(t *testing.T) {
	t.Parallel()
	many := func(n int, one string) string { return strings.Repeat(one+",", n-1) + one }
	for body, want := range map[string]string{
		`{"items":[` + many(100, `{}`) + `]}`:      "",
		`{"items":[` + many(101, `{}`) + `]}`:      "items: must not have more than 100 elements",
		`{"items":[{` + many(101, `"x":0`) + `}]}`: "items[0]: must not have more than 100 members",
		`{` + many(101, `"title":""`) + `}`:        "body: must not have more than 100 members",
	} {
		fields := map[string]string{}
		if err := problem.From(decodeJSON("application/json", body, &input{})); err != nil {
			for _, f := range err.Fields {
				fields[f.Field] = f.Detail
			}
		}
		field, detail, _ := strings.Cut(want, ": ")
		if fields[field] != detail || want == "" && len(fields) > 0 {
			t.Errorf("%.20q of %d bytes: %v, want %q", body, len(body), fields, want)
		}
	}
}

func TestDecodeJSONNamesNoGoType(t *testing.T) {
	t.Parallel()
	var into struct {
		ID    uuid.UUID                `json:"id"`
		Maybe rest.Optional[uuid.UUID] `json:"maybe"`
		Count uint                     `json:"count"`
		Any   interface{ M() }         `json:"any"`
	}
	err := decodeJSON("application/json", `{"id":1,"maybe":1,"count":-1,"any":1}`, &into)
	want := []problem.Field{
		{Field: "id", Detail: "must be a valid value"}, {Field: "maybe", Detail: "must be a valid value"},
		{Field: "count", Detail: "must be an integer of at most 64 bits"}, {Field: "any", Detail: "must be a valid value"},
	}
	if diff := cmp.Diff(want, problem.From(err).Fields); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestDecodeJSONBoundsItsAnswer(t *testing.T) {
	t.Parallel()
	err := decodeJSON("application/json", `{"items":[`+strings.Repeat(`0,`, 200)+`0]}`, &input{})
	if got := len(problem.From(err).Fields); got != 20 {
		t.Errorf("%d fields are named, want 20", got)
	}
}

func TestDecodeJSONRefusesOversizeBodies(t *testing.T) {
	t.Parallel()
	body := `{"title":"a"}` + strings.Repeat(" ", maxBody)
	for _, length := range []int64{int64(len(body)), -1} { // -1 is a body in chunks, of no announced length
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = length
		p := problem.From(rest.DecodeJSON(httptest.NewRecorder(), r, maxBody, &input{}))
		if diff := cmp.Diff([]string{"body"}, names(p)); diff != "" || p.Code != problem.CodeTooLarge {
			t.Errorf("length %d: code %d, fields (-want +got):\n%s", length, p.Code, diff)
		}
	}
}

// A client that waits for 100 Continue need not send a body that is announced as too large.
func TestDecodeJSONReadsNoBodyOfALengthThatIsTooLarge(t *testing.T) {
	t.Parallel()
	for length, want := range map[int64]problem.Code{maxBody: problem.CodeInvalid, maxBody + 1: problem.CodeTooLarge} {
		read := false
		r := httptest.NewRequest(http.MethodPost, "/", readerFunc(func([]byte) (int, error) { read = true; return 0, io.ErrUnexpectedEOF }))
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = length
		p := problem.From(rest.DecodeJSON(httptest.NewRecorder(), r, maxBody, &input{}))
		if diff := cmp.Diff([]string{"body"}, names(p)); diff != "" || p.Code != want || read != (want == problem.CodeInvalid) {
			t.Errorf("%d bytes: code %d, read: %t, fields (-want +got):\n%s", length, p.Code, read, diff)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestDecodeJSONChecksTheMediaType(t *testing.T) {
	t.Parallel()
	patch := []string{"application/merge-patch+json", "application/json"}
	for _, tc := range []struct {
		contentType string
		allowed     []string
		ok          bool
	}{
		{"application/json", nil, true},
		{"Application/JSON", nil, true},
		{"application/json; charset=UTF-8", nil, true},
		{`application/json; charset="utf-8"`, nil, true},
		{"application/json; profile=x", nil, true},
		{"application/json; charset=utf-16", nil, false},
		{"application/json; charset=", nil, false},
		{"application/merge-patch+json; charset=iso-8859-1", patch, false},
		{"application/merge-patch+json", nil, false},
		{"application/merge-patch+json", patch, true},
		{"application/json", patch, true},
		{"text/plain", patch, false},
		{"", nil, false},
	} {
		err := decodeJSON(tc.contentType, `{}`, &input{}, tc.allowed...)
		if tc.ok != (err == nil) || !tc.ok && problem.From(err).Code != problem.CodeMediaType {
			t.Errorf("%q where %q is allowed: %v", tc.contentType, tc.allowed, err)
		}
	}
}

// Another reader of the request, such as a proxy that inspects it, may take another line of a repeated header.
func TestDecodeJSONRefusesRepeatedHeaders(t *testing.T) {
	t.Parallel()
	for name, values := range map[string][]string{
		"Content-Type":     {"application/json", "text/plain"},
		"Content-Encoding": {"identity", "gzip"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header[name] = values
		if err := rest.DecodeJSON(httptest.NewRecorder(), r, maxBody, &input{}); err == nil || problem.From(err).Code != problem.CodeMediaType {
			t.Errorf("%s of %q: %v", name, values, err)
		}
	}
}

// RFC 5789 wants a refused patch to learn of the formats that are taken.
func TestRefusedPatchesLearnTheFormats(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{http.MethodPatch: "application/merge-patch+json, application/json", http.MethodPost: ""} {
		r := httptest.NewRequest(method, "/", strings.NewReader(`{}`))
		r.Header.Set("Content-Type", "application/json-patch+json")
		w := httptest.NewRecorder()
		err := rest.DecodeJSON(w, r, 1000, &input{}, "application/merge-patch+json", "application/json")
		if got := w.Header().Get("Accept-Patch"); problem.From(err).Code != problem.CodeMediaType || got != want {
			t.Errorf("%s: %v, Accept-Patch %q, want %q", method, err, got, want)
		}
	}
}

func TestDecodeJSONUnpacksNothing(t *testing.T) {
	t.Parallel()
	for coding, ok := range map[string]bool{"": true, "identity": true, "gzip": false, "identity, br": false} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Content-Encoding", coding)
		w := httptest.NewRecorder()
		err := rest.DecodeJSON(w, r, 1000, &input{})
		if ok {
			if err != nil {
				t.Errorf("coding %q: %v", coding, err)
			}
			continue
		}
		p := problem.From(err)
		if diff := cmp.Diff([]string{"Content-Encoding"}, names(p)); diff != "" || p.Code != problem.CodeMediaType || w.Header().Get("Accept-Encoding") != "identity" {
			t.Errorf("coding %q: %v, Accept-Encoding %q", coding, err, w.Header().Get("Accept-Encoding"))
		}
	}
}

func TestHasBody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		length int64
		body   io.Reader
		has    bool
	}{
		{0, http.NoBody, false},
		{2, strings.NewReader("{}"), true},
		{-1, strings.NewReader(""), false},
		{-1, strings.NewReader("{}"), true},
		{-1, iotest.ErrReader(io.ErrUnexpectedEOF), true}, // the code that reads it reports the error
	} {
		r := httptest.NewRequest(http.MethodDelete, "/", tc.body)
		r.ContentLength = tc.length
		if has := rest.HasBody(r); has != tc.has {
			t.Errorf("length %d, %v: %t, want %t", tc.length, tc.body, has, tc.has)
		}
		if rest, err := io.ReadAll(r.Body); tc.has && err == nil && string(rest) != "{}" {
			t.Errorf("length %d: %q is left of the body", tc.length, rest)
		}
	}
}

func names(p *problem.Error) []string {
	var names []string
	for _, f := range p.Fields {
		names = append(names, f.Field)
	}
	return names
}

// Any body is accepted, or refused with at most 20 fields of bounded text.
func FuzzDecodeJSON(f *testing.F) {
	for _, body := range []string{
		`{"title":"a","items":[{"name":"b"},null],"note":null}`, `{"items":[{"name":2,"x":0}]}`, `{"title":"\ud83d"}`, `[[[`, `{"Title":{"":[]}}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var into input
		p := problem.From(decodeJSON("application/json", body, &into))
		if p == nil {
			if len(into.Items) > 100 {
				t.Errorf("%d elements were taken", len(into.Items))
			}
			return
		}
		for _, field := range p.Fields {
			if len(field.Field) > 210 || len(field.Detail) > 210 {
				t.Errorf("%q: a fault of %d bytes", body, len(field.Field)+len(field.Detail))
			}
		}
		if len(p.Fields) == 0 || len(p.Fields) > 20 || p.Code == problem.CodeInternal {
			t.Errorf("%q: %v with %d fields", body, p, len(p.Fields))
		}
	})
}

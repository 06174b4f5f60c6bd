package session_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/session"
)

func video(id string, version int64) consistency.Position {
	return consistency.Position{AggregateType: "video", AggregateID: id, Epoch: 1, Version: version}
}

func token(positions ...consistency.Position) string {
	merged, err := consistency.Merge(consistency.Token{Positions: positions})
	if err != nil {
		panic(err)
	}
	return merged.String()
}

// has returns the positions that a session requires, as text that a test can
// compare.
func has(t *testing.T, s *session.Session) (all string) {
	t.Helper()
	if s.Token() == "" {
		return ""
	}
	parsed, err := consistency.Parse(s.Token())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parsed.Positions {
		all += fmt.Sprintf("%s:%d.%d ", p.AggregateID, p.Epoch, p.Version)
	}
	return all
}

func keep(t *testing.T, s *session.Session, text string) {
	t.Helper()
	if err := s.Keep(text); err != nil {
		t.Fatal(err)
	}
}

func TestASessionKeepsTheNewestOfEach(t *testing.T) {
	t.Parallel()
	var s session.Session
	if s.Token() != "" {
		t.Error("a session that has met nothing demands something")
	}
	restored := video("a", 1)
	restored.Epoch = 2
	for _, step := range []struct {
		text, want string
	}{
		{token(video("a", 2)), "a:1.2 "},
		{token(video("b", 1)), "a:1.2 b:1.1 "},
		{token(video("a", 1)), "a:1.2 b:1.1 "}, // an answer that arrived late
		{token(video("a", 3), video("c", 9)), "a:1.3 b:1.1 c:1.9 "},
		{token(restored), "a:2.1 b:1.1 c:1.9 "},
		{token(video("a", 99)), "a:2.1 b:1.1 c:1.9 "},
	} {
		keep(t, &s, step.text)
		if got := has(t, &s); got != step.want {
			t.Errorf("after %s: %q, want %q", step.text, got, step.want)
		}
	}
	before := s.Token()
	other := consistency.Token{Tenant: "other", Positions: []consistency.Position{video("a", 1)}}.String()
	for text, want := range map[string]error{"": consistency.ErrMalformed, "x": consistency.ErrMalformed, other: consistency.ErrOtherTenants} {
		if err := s.Keep(text); !errors.Is(err, want) || s.Token() != before {
			t.Errorf("Keep(%q) = %v, then %q; want %v and no change", text, err, s.Token(), want)
		}
	}
}

// A session that has forgotten its tokens may be that of another tenant.
func TestASessionForgets(t *testing.T) {
	t.Parallel()
	var s session.Session
	keep(t, &s, token(video("a", 2)))
	s.Forget()
	if s.Token() != "" {
		t.Errorf("it still demands %q", has(t, &s))
	}
	keep(t, &s, consistency.Token{Tenant: "other", Positions: []consistency.Position{video("b", 1)}}.String())
	if got := has(t, &s); got != "b:1.1 " {
		t.Errorf("then it demands %q", got)
	}
	keep(t, &s, consistency.Token{Tenant: "other", Positions: []consistency.Position{video("c", 1)}}.String())
	if of, err := consistency.Parse(s.Token()); err != nil || of.Tenant != "other" {
		t.Errorf("it demands a state of the tenant %q, %v", of.Tenant, err)
	}
}

// transport records the tokens of requests.
type transport struct{ sent []string }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.sent = append(t.sent, r.Header.Get("Consistency-Token"))
	return &http.Response{Body: http.NoBody}, nil
}

// A request that names a token is sent as it is.
func TestARequestsOwnTokenIsKept(t *testing.T) {
	t.Parallel()
	var s session.Session
	keep(t, &s, token(video("a", 1)))
	sent := &transport{}
	for _, own := range []struct{ query, header string }{{}, {"?consistency_token=x", ""}, {"", "y"}} {
		r, err := http.NewRequestWithContext(session.With(t.Context(), &s), http.MethodGet, "http://catalog/v1/videos"+own.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Consistency-Token", own.header)
		answer, err := session.Transport{Base: sent}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	if want := []string{s.Token(), "", "y"}; !slices.Equal(sent.sent, want) {
		t.Errorf("sent with the tokens %q, want %q", sent.sent, want)
	}
}

// Concurrent calls may share the array of their options: gRPC passes the default options of a
// connection to each call. An interceptor that appends to them would give a call the metadata of another.
func TestCallsDoNotShareOptions(t *testing.T) {
	t.Parallel()
	var s session.Session
	shared := make([]grpc.CallOption, 1, 2)
	shared[0] = grpc.WaitForReady(true)
	var options int
	invoke := func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		options = len(opts)
		return nil
	}
	if err := session.Intercept(session.With(t.Context(), &s), "/a/b", nil, nil, nil, invoke, shared...); err != nil {
		t.Fatal(err)
	}
	if behind := shared[:2][1]; options != 2 || behind != nil {
		t.Errorf("called with %d options; the array of its caller got %v", options, behind)
	}
}

// message returns an empty message of a type with one text field.
func message(t *testing.T, field string) *dynamicpb.Message {
	t.Helper()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("m.proto"), Syntax: new("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: new("M"), Field: []*descriptorpb.FieldDescriptorProto{{
			Name: new(field), Number: new(int32(1)), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dynamicpb.NewMessage(file.Messages().Get(0))
}

func text(m *dynamicpb.Message) string {
	return m.Get(m.Descriptor().Fields().Get(0)).String()
}

func setText(m *dynamicpb.Message, to string) {
	m.Set(m.Descriptor().Fields().Get(0), protoreflect.ValueOfString(to))
}

// A call gets the session's token in a copy of its request, because the caller may send the request again.
// A request that names a token is sent as it is.
func TestACallsOwnTokenIsKept(t *testing.T) {
	t.Parallel()
	var s session.Session
	keep(t, &s, token(video("a", 1)))
	for _, own := range []string{"", "x"} {
		req := message(t, "at_least_as_fresh")
		setText(req, own)
		var sent string
		invoke := func(_ context.Context, _ string, req, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			sent = text(req.(*dynamicpb.Message))
			return nil
		}
		if err := session.Intercept(session.With(t.Context(), &s), "/a/b", req, nil, nil, invoke); err != nil {
			t.Fatal(err)
		}
		if want := cmp.Or(own, s.Token()); sent != want || text(req) != own {
			t.Errorf("a request with %q was sent with %q, and is now with %q; want it sent with %q, and unchanged", own, sent, text(req), want)
		}
	}
}

// A call without a session, and one with messages that have no fields for tokens, are made as they are, and return their error.
func TestOtherCallsAreNotChanged(t *testing.T) {
	t.Parallel()
	var s session.Session
	keep(t, &s, token(video("a", 1)))
	failed := errors.New("no connection")
	for name, ctx := range map[string]context.Context{"no session": t.Context(), "a session": session.With(t.Context(), &s)} {
		for want, m := range map[error]*dynamicpb.Message{nil: message(t, "title"), failed: message(t, "at_least_as_fresh")} {
			invoke := func(_ context.Context, _ string, req, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				if req != any(m) && (name == "no session" || want == nil) {
					t.Errorf("%s: another request is sent", name)
				}
				return want
			}
			if err := session.Intercept(ctx, "/a/b", m, m, nil, invoke); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://catalog/v1/videos", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := session.Transport{Base: answers(func(sent *http.Request) (*http.Response, error) {
			if sent != r && name == "no session" {
				t.Errorf("%s: another request is sent", name)
			}
			return nil, failed
		})}.RoundTrip(r)
		if answer != nil || !errors.Is(err, failed) {
			t.Errorf("%s: %v, %v, want the error", name, answer, err)
		}
	}
}

// An answer of which the session keeps nothing is an error, because the next read might be older. An error
// may name a token, too, such as that of a deleted video.
func TestACallsTokenIsKept(t *testing.T) {
	t.Parallel()
	deleted := status.Error(codes.NotFound, "deleted")
	for name, tc := range map[string]struct {
		header, answer string
		err, want      error
		kept           string
	}{
		"an answer":                        {"", token(video("a", 2)), nil, nil, "a:1.2 "},
		"an answer's header":               {token(video("a", 3)), "", nil, nil, "a:1.3 "},
		"an error":                         {token(video("a", 4)), "", deleted, deleted, "a:1.4 "},
		"an answer without a token":        {"", "", nil, nil, "a:1.1 "},
		"an answer with another token":     {"", "x", nil, consistency.ErrMalformed, "a:1.1 "},
		"a header with another token":      {"x", token(video("a", 2)), nil, consistency.ErrMalformed, "a:1.2 "},
		"an error with another token":      {"x", "", deleted, deleted, "a:1.1 "},
		"an error behind a part of answer": {"", token(video("a", 2)), deleted, deleted, "a:1.1 "},
	} {
		var s session.Session
		keep(t, &s, token(video("a", 1)))
		reply := message(t, "consistency_token")
		invoke := func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
			for _, o := range opts {
				if header, ok := o.(grpc.HeaderCallOption); ok && tc.header != "" {
					*header.HeaderAddr = metadata.Pairs("consistency-token", tc.header)
				}
			}
			setText(reply, tc.answer)
			return tc.err
		}
		err := session.Intercept(session.With(t.Context(), &s), "/a/b", nil, reply, nil, invoke)
		if !errors.Is(err, tc.want) || has(t, &s) != tc.kept {
			t.Errorf("%s: %v, then the session demands %q; want %v and %q", name, err, has(t, &s), tc.want, tc.kept)
		}
	}
}

// body notes that it was closed.
type body struct {
	io.Reader

	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// The transport leaves its request as it is, and returns no answer of which the session keeps nothing.
func TestATransportKeepsTokens(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer string
		want   error
		kept   string
	}{
		"a token":       {token(video("a", 2)), nil, "a:1.2 "},
		"another token": {"x", consistency.ErrMalformed, "a:1.1 "},
	} {
		var s session.Session
		keep(t, &s, token(video("a", 1)))
		content := &body{Reader: http.NoBody}
		r, err := http.NewRequestWithContext(session.With(t.Context(), &s), http.MethodGet, "http://catalog/v1/videos", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := session.Transport{Base: answers(func(*http.Request) (*http.Response, error) {
			return &http.Response{Header: http.Header{"Consistency-Token": {tc.answer}}, Body: content}, nil
		})}.RoundTrip(r)
		if !errors.Is(err, tc.want) || (answer == nil) != (err != nil) || content.closed != (err != nil) || has(t, &s) != tc.kept {
			t.Errorf("%s: %v, %v, closed %t, then the session demands %q; want %v and %q",
				name, answer, err, content.closed, has(t, &s), tc.want, tc.kept)
		}
		if sent := r.Header.Get("Consistency-Token"); sent != "" {
			t.Errorf("%s: the caller's request has the token %q", name, sent)
		}
		if answer != nil {
			answer.Body.Close()
		}
	}
}

// The aggregates met longest ago are dropped first, both if there are many ids
// and if ids are long.
func TestASessionIsBounded(t *testing.T) {
	t.Parallel()
	for name, idLength := range map[string]int{"many": 3, "long": 900} {
		var s session.Session
		id := func(n int) string { return fmt.Sprintf("%0*d", idLength, n) }
		const all = 3 * consistency.MaxPositions
		for n := range all {
			keep(t, &s, token(video(id(n), 1)))
			if !strings.Contains(has(t, &s), id(0)+":") {
				t.Fatalf("%s: the one that was met just before %d is dropped", name, n)
			}
			keep(t, &s, token(video(id(0), int64(n+1)))) // met again each time
		}
		got := has(t, &s)
		if !strings.Contains(got, fmt.Sprintf("%s:1.%d ", id(0), all)) || !strings.Contains(got, id(all-1)+":1.1 ") || strings.Contains(got, id(1)+":") {
			t.Errorf("%s: %.200q", name, got)
		}
		if len(s.Token()) > consistency.MaxLength {
			t.Errorf("%s: a token of %d bytes", name, len(s.Token()))
		}
	}
}

func TestASessionOfManyGoroutines(t *testing.T) {
	t.Parallel()
	var s session.Session
	var calls sync.WaitGroup
	for n := range int64(20) {
		calls.Go(func() {
			for version := range int64(50) {
				if err := s.Keep(token(video(fmt.Sprint("v", n%4), n*50+version+1))); err != nil {
					t.Error(err)
				}
				_ = s.Token()
			}
		})
	}
	calls.Wait()
	if got, want := has(t, &s), "v0:1.850 v1:1.900 v2:1.950 v3:1.1000 "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

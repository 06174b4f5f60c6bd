package session

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The names under which requests and answers carry tokens.
const (
	// demandField is the field of a request message.
	demandField = "at_least_as_fresh"
	// answerField is the field of an answer message, and the query parameter of a REST request.
	answerField = "consistency_token"
	// header is the header of a REST request or answer, and the metadata key of a gRPC answer.
	header = "Consistency-Token"
)

// Intercept is a gRPC client interceptor. A request with an empty field at_least_as_fresh is sent
// with the session's token. Intercept keeps the token of an answer, which is in the metadata or in
// the field consistency_token of the answer. It also keeps a token in the metadata of an error. A
// call without a session is not changed.
//
// If the token of an answer cannot be kept, the call returns an error although it was carried out,
// because the session's next read might be older than it should be.
func Intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	s := of(ctx)
	if s == nil {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	var md metadata.MD
	// Concurrent calls may share the array of opts, so the option is appended to a copy.
	err := invoke(ctx, method, withToken(req, s.Token()), reply, cc, append(slices.Clip(opts), grpc.Header(&md))...)
	tokens := md.Get(header)
	if err == nil {
		tokens = append(tokens, answered(reply))
	}
	for _, token := range tokens {
		err = cmp.Or(err, s.keepAnswer(method, token))
	}
	return err
}

// withToken returns a copy of req that requires token. The caller's own request stays
// unchanged, because the caller may send it again.
func withToken(req any, token string) any {
	m, ok := req.(proto.Message)
	if !ok || token == "" {
		return req
	}
	field := textField(m, demandField)
	if field == nil || m.ProtoReflect().Has(field) {
		return req
	}
	m = proto.Clone(m)
	m.ProtoReflect().Set(field, protoreflect.ValueOfString(token))
	return m
}

func answered(reply any) string {
	m, ok := reply.(proto.Message)
	if !ok {
		return ""
	}
	field := textField(m, answerField)
	if field == nil {
		return ""
	}
	return m.ProtoReflect().Get(field).String()
}

func textField(m proto.Message, name protoreflect.Name) protoreflect.FieldDescriptor {
	field := m.ProtoReflect().Descriptor().Fields().ByName(name)
	if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
		return nil
	}
	return field
}

func (s *Session) keepAnswer(call, token string) error {
	if token == "" {
		return nil
	}
	if err := s.Keep(token); err != nil {
		return fmt.Errorf("%s was answered, and its token cannot be kept: %w", call, err)
	}
	return nil
}

// Transport does the work of [Intercept] for REST, with the header Consistency-Token. A request with a
// token of its own, in that header or in the query parameter consistency_token, is sent as it is.
type Transport struct {
	// Base sends the requests. Nil means http.DefaultTransport.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	s := of(r.Context())
	if s == nil {
		return base.RoundTrip(r)
	}
	if token := s.Token(); token != "" && r.Header.Get(header) == "" && !r.URL.Query().Has(answerField) {
		r = r.Clone(r.Context()) // a RoundTripper must not change its request
		r.Header.Set(header, token)
	}
	resp, err := base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if err := s.keepAnswer(r.Method+" "+r.URL.Path, resp.Header.Get(header)); err != nil {
		_ = resp.Body.Close() // the answer is not returned
		return nil, err
	}
	return resp, nil
}

package attack

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// HTTP is a fuzz test that sends any method, target, headers and body to a handler. In each of
// these parts it replaces [Placeholder] by an id that the function id returns. The seed requests go
// to the given targets. The test fails if the status of an answer is 500 or above, except 503. The
// test also fails if the answer to an error is not a problem document.
func HTTP(f *testing.F, handler http.Handler, id func(*testing.T) string, targets ...string) {
	f.Helper()
	const json = "Content-Type: application/json\n"
	for _, target := range targets {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"} {
			f.Add(method, target, json+"Idempotency-Key: "+method+"\nIf-Match: \"1\"", `{"title":"a","liked":true}`)
			f.Add(method, target, json+"Prefer: wait=0\nConsistency: minimize-latency", `{"title":"a","uploader_id":"`+Placeholder+`"}`)
			query := "?page_size=2&page_token=a&q=a&reason=b&consistency_token=AgAFdmlkZW8"
			f.Add(method, target+query, "Consistency-Token: a\nOrigin: http://a", "")
		}
	}
	f.Fuzz(func(t *testing.T, method, target, headers, body string) {
		text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: a\r\n%s\r\nContent-Length: %d\r\n\r\n%s",
			method, target, strings.ReplaceAll(headers, "\n", "\r\n"), len(body), body)
		if strings.Contains(text, Placeholder) {
			text = strings.ReplaceAll(text, Placeholder, id(t))
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			t.Skip("net/http refuses it")
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r.WithContext(t.Context()))
		if err := checkHTTP(w); err != nil {
			t.Errorf("%q: %d %.500q: %v", text, w.Code, w.Body, err)
		}
	})
}

func checkHTTP(w *httptest.ResponseRecorder) error {
	if w.Code < http.StatusBadRequest {
		return nil
	}
	var p struct {
		Status int    `json:"status"`
		Title  string `json:"title"`
		Detail string `json:"detail"`
		Reason string `json:"reason"`
	}
	err := json.Unmarshal(w.Body.Bytes(), &p)
	complete := p.Status == w.Code && p.Title != "" && p.Detail != "" && p.Reason != ""
	switch {
	case w.Code >= http.StatusInternalServerError && w.Code != http.StatusServiceUnavailable:
		return errors.New("a fault of the service")
	case err != nil || !complete || w.Header().Get("Content-Type") != "application/problem+json":
		return fmt.Errorf("no problem document: %+v, %w", p, err)
	}
	return nil
}

// RPC is a fuzz test that calls each method of the services behind conn. It sends any bytes as the
// message, and any value in one of the headers that a service reads. In the bytes it replaces
// [Placeholder] by an id that the function id returns. The test fails if a call ends with the code
// of a fault of the service, such as INTERNAL, or with an error that has no reason.
func RPC(f *testing.F, conn *grpc.ClientConn, id func(*testing.T) string) {
	f.Helper()
	headers := []string{"idempotency-key", "authorization", "x-service-authorization", "traceparent"}
	var methods []string
	for _, service := range services(f, conn) {
		for i := range service.Methods().Len() {
			m := service.Methods().Get(i)
			full, err := proto.Marshal(filled(m.Input(), maxNesting))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(byte(len(methods)), byte(0), "key", full)
			for _, message := range messages(m.Input(), 2*room) {
				f.Add(byte(len(methods)), byte(1), "Bearer a.b.c", message)
			}
			methods = append(methods, fmt.Sprintf("/%s/%s", service.FullName(), m.Name()))
		}
	}
	f.Fuzz(func(t *testing.T, method, header byte, value string, message []byte) {
		if bytes.Contains(message, []byte(Placeholder)) {
			message = bytes.ReplaceAll(message, []byte(Placeholder), []byte(id(t)))
		}
		if len(message) > sizes[0] {
			t.Skip("the transport refuses it")
		}
		value = strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '?' // the client refuses all other characters
			}
			return r
		}, value)
		ctx := metadata.AppendToOutgoingContext(t.Context(), headers[int(header)%len(headers)], value)
		name := methods[int(method)%len(methods)]
		var answer []byte
		err := conn.Invoke(ctx, name, message, &answer, grpc.ForceCodecV2(raw{}))
		if err := checkRPC(status.Convert(err)); err != nil {
			t.Errorf("%s with %q and %q: %v", name, message, value, err)
		}
	})
}

func checkRPC(s *status.Status) error {
	reason := ""
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			reason = info.GetReason()
		}
	}
	switch code := s.Code(); code {
	case codes.OK:
		return nil
	case codes.Internal, codes.Unknown, codes.DataLoss, codes.DeadlineExceeded:
		return fmt.Errorf("a fault of the service: %w", s.Err())
	default:
		if reason == "" {
			return fmt.Errorf("no reason: %w", s.Err())
		}
		return nil
	}
}

// filled returns a message with Placeholder in each string, 1 in each number and true in each bool.
// It also fills nested messages, at most depth levels down.
func filled(of protoreflect.MessageDescriptor, depth int) *dynamicpb.Message {
	m := dynamicpb.NewMessage(of)
	for i := range of.Fields().Len() {
		f := of.Fields().Get(i)
		var v protoreflect.Value
		switch f.Kind() {
		case protoreflect.StringKind:
			v = protoreflect.ValueOfString(Placeholder)
		case protoreflect.Int64Kind:
			v = protoreflect.ValueOfInt64(1)
		case protoreflect.Int32Kind:
			v = protoreflect.ValueOfInt32(1)
		case protoreflect.BoolKind:
			v = protoreflect.ValueOfBool(true)
		case protoreflect.MessageKind:
			if depth == 0 {
				continue
			}
			v = protoreflect.ValueOfMessage(filled(f.Message(), depth-1))
		default:
			continue
		}
		switch {
		case f.IsMap():
		case f.IsList():
			m.Mutable(f).List().Append(v)
		default:
			m.Set(f, v)
		}
	}
	return m
}

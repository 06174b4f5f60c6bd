// Package rest has the rules of the services' REST APIs: JSON bodies and merge patches,
// query parameters, entity tags, the headers of fresh reads, and pages.
//
// Every fault of a request is a problem that names the field, and the faults of a body are
// reported together. Everything that a request can make the server allocate is bounded before
// the request is decoded.
package rest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"example.com/lockstep/internal/problem"
)

// WriteJSON answers with v. It panics if JSON cannot hold v. It does not report that the client
// has disconnected.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode answer: %w", err)) //nolint:forbidigo // a bug in the caller: answered with INTERNAL by recoverer
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // alone, because append would copy it, and it stays in memory until the client has read it
	_, _ = io.WriteString(w, "\n")
}

// DecodeJSON reads the body of r, one JSON value of at most maxBytes, into the value that into
// points to. It refuses names that are unknown, repeated or misspelt in their case, and values
// of the wrong type. The error for such a fault is an *[problem.Error] that names all faulty
// fields by their JSON path. A fault of the body as a whole is reported for "body". Without
// mediaTypes, DecodeJSON takes application/json only. It refuses compressed bodies, because a
// bound on compressed bytes would not bound the unpacked bytes.
func DecodeJSON(w http.ResponseWriter, r *http.Request, maxBytes int64, into any, mediaTypes ...string) error {
	if len(mediaTypes) == 0 {
		mediaTypes = []string{"application/json"}
	}
	if err := checkMediaType(w, r, mediaTypes); err != nil {
		return err
	}
	body, err := readBody(w, r, maxBytes)
	if err != nil {
		return err
	}
	if fields := checkJSON(body, into); len(fields) > 0 {
		return problem.InvalidFields(fields)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode body that passed the check: %w", err)
	}
	return nil
}

// HasBody reports whether r has a body, for methods whose body is optional. It reads ahead if no
// length is announced, because such a body may be empty.
func HasBody(r *http.Request) bool {
	if r.ContentLength >= 0 {
		return r.ContentLength > 0
	}
	body := bufio.NewReader(r.Body)
	_, err := body.Peek(1)
	r.Body = struct {
		io.Reader
		io.Closer
	}{body, r.Body}
	return !errors.Is(err, io.EOF)
}

func checkMediaType(w http.ResponseWriter, r *http.Request, allowed []string) error {
	// Several lines of a header count as one list, because another reader may take another line.
	coding := strings.Join(r.Header.Values("Content-Encoding"), ", ")
	if coding != "" && !strings.EqualFold(coding, "identity") {
		w.Header().Set("Accept-Encoding", "identity")
		p := problem.New(problem.CodeMediaType, "", "The body must not be compressed.")
		p.Fields = []problem.Field{{Field: "Content-Encoding", Detail: "must be identity, or absent"}}
		return p
	}
	mediaType, parameters, err := mime.ParseMediaType(strings.Join(r.Header.Values("Content-Type"), ", "))
	charset, given := parameters["charset"]
	if err == nil && slices.Contains(allowed, mediaType) && (!given || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	if r.Method == http.MethodPatch {
		w.Header().Set("Accept-Patch", strings.Join(allowed, ", ")) // RFC 5789
	}
	form := "must be " + strings.Join(allowed, " or ") + " in UTF-8"
	p := problem.New(problem.CodeMediaType, "", "The body "+form+".")
	p.Fields = []problem.Field{{Field: "body", Detail: form}}
	return p
}

func readBody(w http.ResponseWriter, r *http.Request, maxBytes int64) ([]byte, error) {
	if r.ContentLength > maxBytes {
		return nil, tooLarge(maxBytes) // unread, so a client that waits for 100 Continue does not send the body
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
	if err == nil {
		return body, nil
	}
	if exceeded, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, tooLarge(exceeded.Limit)
	}
	p := problem.Invalid("body", "did not arrive in full")
	p.Cause = err
	return nil, p
}

func tooLarge(maxBytes int64) *problem.Error {
	limit := fmt.Sprintf("must be at most %d bytes long", maxBytes)
	p := problem.New(problem.CodeTooLarge, "", "The body "+limit+".")
	p.Fields = []problem.Field{{Field: "body", Detail: limit}}
	return p
}

// Optional is a member of a JSON merge patch (RFC 7396). An absent member leaves the field as it
// is, null clears the field, and a value sets it. A value of the wrong type is a
// *json.UnmarshalTypeError.
type Optional[T any] struct {
	Set   bool // the member was there
	Null  bool // and it was null
	Value T
}

// UnmarshalJSON is not called for an absent member, which therefore stays unset.
func (o *Optional[T]) UnmarshalJSON(data []byte) error {
	*o = Optional[T]{Set: true, Null: bytes.Equal(data, []byte("null"))}
	if err := json.Unmarshal(data, &o.Value); err != nil { // null leaves Value as it is
		return &json.UnmarshalTypeError{Type: reflect.TypeFor[T]()}
	}
	return nil
}

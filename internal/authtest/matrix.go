package authtest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"example.com/lockstep/internal/auth"
)

// The outcomes of a call.
const (
	admitted        = "yes"
	unauthenticated = "401"
	denied          = "403"
	notFound        = "404"
)

// Matrix is a service, and a good request for each of its operations.
type Matrix struct {
	Issuers

	Rules auth.Rules
	// Operations are the operations that the service has registered.
	Operations []string
	// Shared are operations with the access Users or SignedIn that do not require the ownership of
	// a row. Every user of the owner's tenant may call them. In this tenant, only the owner and
	// admins may call the other operations with the access Users or SignedIn.
	Shared []string
	// Bodies are the request bodies by operation. A name in braces, in a body or in a route, stands
	// for the value that Values has for this name.
	Bodies map[string]string
	// Values returns the values for one request, such as the ids of rows that Owner owns.
	Values func() map[string]string

	URL  string
	Conn *grpc.ClientConn
}

type answer struct {
	outcome string
	whole   string // the whole answer, with {} in place of each value
	again   bool   // the service had no keys, or too many requests waited for them
}

// Run calls each operation with each identity. It expects the outcome that follows from Rules and
// from the ownership of the rows. All faults of a token must get the same answer from an operation.
// Run returns the outcomes as a table in Markdown.
func (m Matrix) Run(t *testing.T) (table string) {
	t.Helper()
	outcomes, refusals := map[string]map[kind]string{}, map[string]string{}
	for _, operation := range m.Operations {
		outcomes[operation] = map[kind]string{}
	}
	var mu sync.Mutex
	for _, who := range m.identities {
		// All calls run at once, because requests with an unknown key can then wait for the same
		// fetch of the keys. The authenticator allows a few such fetches at once, and then one in
		// ten seconds.
		var calls sync.WaitGroup
		begin := make(chan struct{})
		for _, operation := range m.Operations {
			values := m.Values()
			calls.Go(func() {
				<-begin
				got, want := m.call(t, operation, who, values), m.expected(operation, who.kind)
				if got.outcome != want {
					t.Errorf("%s by %s: %s, want %s", operation, who.name, got.outcome, want)
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes[operation][who.kind] = got.outcome
				if who.kind != invalid || want != unauthenticated {
					return
				}
				if first, ok := refusals[operation]; ok && first != got.whole {
					t.Errorf("%s by %s: the answer is\n%s\nand to another fault\n%s", operation, who.name, got.whole, first)
				}
				refusals[operation] = got.whole
			})
		}
		close(begin)
		calls.Wait()
	}
	return m.table(outcomes)
}

// expected returns the outcome that follows from the rules and the owner.
func (m Matrix) expected(operation string, who kind) string {
	access := m.Rules[operation]
	switch {
	case access == auth.Public:
		return admitted
	case who == none || who == invalid:
		return unauthenticated
	case access == auth.Services && who == service, access == auth.SignedIn && who == service:
		return admitted
	case access == auth.Services || who == service:
		return denied
	}
	return m.ofUser(operation, who)
}

// ofUser returns the outcome of an operation that users may call.
func (m Matrix) ofUser(operation string, who kind) string {
	switch {
	case who == stranger && m.namesRow(operation):
		return notFound // a caller of another tenant may not even learn that the row exists
	case who == other && !slices.Contains(m.Shared, operation):
		return denied
	}
	return admitted
}

// checkChallenge expects that a 401 says how to prove an identity.
func checkChallenge(t *testing.T, operation string, who identity, resp *http.Response) {
	t.Helper()
	if resp.StatusCode != http.StatusUnauthorized {
		return
	}
	want := map[kind]string{none: "Bearer", invalid: `Bearer error="invalid_token"`}[who.kind]
	if got := resp.Header.Get("WWW-Authenticate"); got != want || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s by %s: WWW-Authenticate %q, want %q", operation, who.name, got, want)
	}
}

// lists matches the operations that answer with a list of rows. The list has only rows of the
// caller's tenant.
var lists = regexp.MustCompile(`^GET .*[^}]$|/List\w+$`)

// namesRow reports whether a request is about one row of the owner.
func (m Matrix) namesRow(operation string) bool {
	request := strings.ReplaceAll(operation+m.Bodies[operation], "{user_id}", "")
	return strings.Contains(request, "id}") && !lists.MatchString(operation)
}

// call makes a request and returns the answer. It repeats the request while the service fetches the
// keys, or while too many requests wait for the keys.
func (m Matrix) call(t *testing.T, operation string, who identity, values map[string]string) answer {
	t.Helper()
	to, back := make([]string, 0, 2*len(values)), make([]string, 0, 2*len(values))
	for name, value := range values {
		to, back = append(to, "{"+name+"}", value), append(back, value, "{}")
	}
	fill, empty := strings.NewReplacer(to...), strings.NewReplacer(back...)
	send := m.rest
	if strings.HasPrefix(operation, "/") {
		send = m.rpc
	}
	for {
		got := send(t, operation, who, fill)
		if !got.again || t.Context().Err() != nil {
			got.whole = empty.Replace(got.whole)
			return got
		}
	}
}

func (m Matrix) rest(t *testing.T, operation string, who identity, fill *strings.Replacer) answer {
	t.Helper()
	method, route, _ := strings.Cut(operation, " ")
	path := fill.Replace(route)
	if strings.Contains(path, "{") {
		t.Errorf("%s: no value for a parameter", operation)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, m.URL+path, bytes.NewReader([]byte(fill.Replace(m.Bodies[operation]))))
	if err != nil {
		t.Error(err)
		return answer{}
	}
	maps.Copy(req.Header, who.header)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return answer{}
	}
	defer resp.Body.Close()
	checkChallenge(t, operation, who, resp)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	if video := fill.Replace("{video_id}"); who.kind == stranger && resp.StatusCode < 300 && strings.Contains(string(body), video) {
		t.Errorf("%s by %s shows the video %s", operation, who.name, video)
	}
	resp.Header.Del("Date")
	whole := fmt.Sprintln(resp.StatusCode, resp.Header, string(body))
	switch code := resp.StatusCode; {
	case code == http.StatusServiceUnavailable, code == http.StatusTooManyRequests:
		return answer{again: true}
	case code < http.StatusMultipleChoices:
		return answer{outcome: admitted, whole: whole}
	default:
		return answer{outcome: fmt.Sprint(code), whole: whole}
	}
}

func (m Matrix) rpc(t *testing.T, operation string, who identity, fill *strings.Replacer) answer {
	t.Helper()
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(operation, "/"), "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	body, given := m.Bodies[operation]
	if err != nil || !given {
		t.Errorf("%s: no request is given (%v)", operation, err)
		return answer{}
	}
	req := dynamicpb.NewMessage(found.(protoreflect.MethodDescriptor).Input())
	if err := protojson.Unmarshal([]byte(fill.Replace(body)), req); err != nil {
		t.Errorf("%s: %v", operation, err)
		return answer{}
	}
	var pairs []string
	for name, values := range who.header {
		pairs = append(pairs, name, values[0])
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), pairs...)
	var header, trailer metadata.MD
	err = m.Conn.Invoke(ctx, operation, req, &emptypb.Empty{}, grpc.Header(&header), grpc.Trailer(&trailer))
	delete(header, "date")
	delete(trailer, "date")
	whole := fmt.Sprintln(status.Convert(err).Proto(), header, trailer)
	switch code := status.Code(err); code {
	case codes.OK:
		return answer{outcome: admitted, whole: whole}
	case codes.Unauthenticated:
		return answer{outcome: unauthenticated, whole: whole}
	case codes.PermissionDenied:
		return answer{outcome: denied, whole: whole}
	case codes.NotFound:
		return answer{outcome: notFound, whole: whole}
	default:
		return answer{outcome: code.String(), whole: whole, again: code == codes.Unavailable || code == codes.ResourceExhausted}
	}
}

// table has a row for each operation and a column for each kind of identity.
func (m Matrix) table(outcomes map[string]map[kind]string) string {
	lines := []string{
		"| operation | no token | token not valid | other tenant | other user | owner | admin | service |",
		"| --- | --- | --- | --- | --- | --- | --- | --- |",
	}
	for _, operation := range m.Operations {
		line := []string{"| `" + operation + "`"}
		for _, who := range []kind{none, invalid, stranger, other, owner, admin, service} {
			line = append(line, outcomes[operation][who])
		}
		lines = append(lines, strings.Join(line, " | ")+" |")
	}
	return strings.Join(lines, "\n")
}

// CheckTable expects that the document has the table between the comment with that name and the
// next comment.
func CheckTable(t *testing.T, document, name, table string) {
	t.Helper()
	text, err := os.ReadFile(document) //nolint:gosec // the test names its own document
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "<!-- table: "+name+" -->\n")
	shown, _, _ := strings.Cut(after, "<!--")
	if !found || !slices.Equal(sortedLines(shown), sortedLines(table)) {
		t.Errorf("%s should have, under <!-- table: %s -->:\n%s", document, name, table)
	}
}

// sortedLines returns the lines of a table in sorted order, so that their order in the document
// does not matter.
func sortedLines(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return lines
}

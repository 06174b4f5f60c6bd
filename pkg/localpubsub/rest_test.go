package localpubsub

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// object is any JSON.
type object = map[string]any

func TestREST(t *testing.T) {
	t.Parallel()
	base := startREST(t)
	const topic, sub = "/v1/projects/p/topics/events", "/v1/projects/p/subscriptions/worker"
	failed := func(code int, status, message string) object {
		return object{"error": object{"code": float64(code), "status": status, "message": message}}
	}
	for _, step := range []struct {
		name, method, path, body string
		code                     int
		// want is a part of the answer; a string in it is a part of the string.
		want object
	}{
		{"create", "PUT", topic, `{"labels":{"a":"1"}}`, 200, object{"name": "projects/p/topics/events", "labels": object{"a": "1"}}},
		{"create twice", "PUT", topic, `{}`, 409, failed(409, "ALREADY_EXISTS", "")},
		{"create without body", "PUT", "/v1/projects/p/topics/other", ``, 200, object{"name": "projects/p/topics/other"}},
		{"escaped name", "PUT", "/v1/projects/p/topics/one%25two", `{}`, 200, object{"name": "projects/p/topics/one%two"}},
		{"get", "GET", topic + "?alt=json&prettyPrint=false", ``, 200, object{"labels": object{"a": "1"}}},
		{"get what is missing", "GET", topic + "x", ``, 404, failed(404, "NOT_FOUND", "")},
		{"mask in the query", "PATCH", topic + "?updateMask=labels%2CmessageRetentionDuration",
			`{"topic":{"labels":{"a":"2"},"messageRetentionDuration":"600s"}}`, 200,
			object{"name": "projects/p/topics/events", "labels": object{"a": "2"}, "messageRetentionDuration": "600s"}},
		{"mask in the body", "PATCH", topic, `{"updateMask":"labels","topic":{"labels":{"a":"3"}}}`, 200, object{"labels": object{"a": "3"}}},
		{"snake case", "PATCH", topic + "?update_mask=message_retention_duration", `{"topic":{"message_retention_duration":"660s"}}`, 200,
			object{"messageRetentionDuration": "660s", "labels": object{"a": "3"}}},
		{"snake case mask in the body", "PATCH", topic, `{"update_mask":"message_retention_duration","topic":{"message_retention_duration":"720s"}}`, 200,
			object{"messageRetentionDuration": "720s", "labels": object{"a": "3"}}},
		{"list in the body", "PATCH", topic, `[]`, 400, failed(400, "INVALID_ARGUMENT", "JSON")},
		{"mask in both", "PATCH", topic + "?updateMask=labels", `{"updateMask":"nothing","topic":{"labels":{"a":"4"}}}`, 200, object{"labels": object{"a": "4"}}},
		{"unknown field in the body", "PATCH", topic + "?updateMask=labels", `{"topic":{"lables":{}}}`, 400, failed(400, "INVALID_ARGUMENT", `"lables"`)},
		{"bad duration in the body", "PUT", topic + "y", `{"messageRetentionDuration":"1d"}`, 400, failed(400, "INVALID_ARGUMENT", `"1d"`)},
		{"no JSON in the body", "PUT", topic + "y", `{`, 400, failed(400, "INVALID_ARGUMENT", "JSON")},
		{"body where none belongs", "DELETE", topic, `{"a":1}`, 400, failed(400, "INVALID_ARGUMENT", "takes none")},
		{"page", "GET", "/v1/projects/p/topics?pageSize=1&pageToken=", ``, 200, object{"topics": []any{object{"name": "projects/p/topics/"}}}},
		{"bad page size", "GET", "/v1/projects/p/topics?pageSize=x", ``, 400, failed(400, "INVALID_ARGUMENT", `"pageSize"`)},
		{"parameter twice", "GET", "/v1/projects/p/topics?pageSize=1&pageSize=2", ``, 400, failed(400, "INVALID_ARGUMENT", "2 times")},
		{"unknown parameter", "GET", topic + "?nope=1", ``, 400, failed(400, "INVALID_ARGUMENT", `"nope"`)},
		{"parameter below a text", "GET", topic + "?topic.a=1", ``, 400, failed(400, "INVALID_ARGUMENT", `"topic"`)},
		{"other formats", "GET", topic + "?alt=proto", ``, 400, failed(400, "INVALID_ARGUMENT", `"alt"`)},
		{"no such path", "GET", "/v1/projects/p/things/t1", ``, 404, failed(404, "NOT_FOUND", "things")},
		{"no such verb", "POST", topic + ":shout", `{}`, 404, failed(404, "NOT_FOUND", "shout")},
		{"no such method", "POST", topic, `{}`, 404, failed(404, "NOT_FOUND", "POST")},
		{"subscription", "PUT", sub, `{"topic":"projects/p/topics/events","ackDeadlineSeconds":20,"expirationPolicy":{}}`, 200,
			object{"ackDeadlineSeconds": 20.0, "expirationPolicy": object{}}},
		{"publish", "POST", topic + ":publish", `{"messages":[{"data":"aGVsbG8=","attributes":{"k":"v"}}]}`, 200, object{"messageIds": []any{"m"}}},
		{"pull", "POST", sub + ":pull", `{"maxMessages":"10"}`, 200,
			object{"receivedMessages": []any{object{"message": object{"data": "aGVsbG8=", "attributes": object{"k": "v"}}}}}},
		{"list of a topic", "GET", topic + "/subscriptions", ``, 200, object{"subscriptions": []any{"projects/p/subscriptions/worker"}}},
		{"schema", "POST", "/v1/projects/p/schemas?schemaId=event", `{"type":"PROTOCOL_BUFFER","definition":"d"}`, 200,
			object{"name": "projects/p/schemas/event", "type": "PROTOCOL_BUFFER"}},
		{"enum by name", "GET", "/v1/projects/p/schemas/event?view=FULL", ``, 200, object{"definition": "d"}},
		{"enum by number", "GET", "/v1/projects/p/schemas/event?view=2", ``, 200, object{"definition": "d"}},
		{"no such enum", "GET", "/v1/projects/p/schemas/event?view=ALL", ``, 400, failed(400, "INVALID_ARGUMENT", `"view"`)},
		{"delete", "DELETE", topic, ``, 200, object{}},
	} {
		t.Run(step.name, func(t *testing.T) { // one after the other: they build upon each other
			code, got := send(t, step.method, base+step.path, step.body)
			if code != step.code || !contains(got, step.want) {
				t.Errorf("%s %s = %d %v, want %d %v", step.method, step.path, code, got, step.code, step.want)
			}
		})
	}
}

func TestRESTReady(t *testing.T) {
	t.Parallel()
	response, err := http.Get(startREST(t) + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.HasPrefix(string(body), "Ok") {
		t.Errorf("GET / = %d %q, %v", response.StatusCode, body, err)
	}
}

func TestRESTBoundsBodies(t *testing.T) {
	t.Parallel()
	body := `{"messages":[{"data":"` + strings.Repeat("A", maxRESTBody) + `"}]}`
	code, got := send(t, "POST", startREST(t)+"/v1/projects/p/topics/events:publish", body)
	want := object{"error": object{"status": "INVALID_ARGUMENT", "message": "bytes"}}
	if code != http.StatusBadRequest || !contains(got, want) {
		t.Errorf("%d bytes = %d %v, want 400", len(body), code, got)
	}
}

// TestRESTKeepsDetails: clients read reasons from them.
func TestRESTKeepsDetails(t *testing.T) {
	t.Parallel()
	s, err := status.New(codes.OutOfRange, "too far").WithDetails(&errdetails.ErrorInfo{Reason: "FAR", Domain: "d"})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	writeError(w, s)
	want := `{"error":{"code":400,"message":"too far","status":"OUT_OF_RANGE","details":` +
		`[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"FAR","domain":"d"}]}}`
	var got bytes.Buffer
	if err := json.Compact(&got, w.Body.Bytes()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.String()); diff != "" || w.Code != http.StatusBadRequest {
		t.Errorf("code %d, body (-want +got):\n%s", w.Code, diff)
	}
}

// TestEveryUnaryMethodHasARoute holds the routes against the services.
func TestEveryUnaryMethodHasARoute(t *testing.T) {
	t.Parallel()
	routed := make(map[string]int)
	for _, routes := range annotatedRoutes() {
		for _, r := range routes {
			routed[r.method]++
		}
	}
	want := map[string]int{"StreamingPull": 0, "GetIamPolicy": 4, "SetIamPolicy": 4, "TestIamPermissions": 4}
	for _, service := range []grpc.ServiceDesc{
		pubsubpb.Publisher_ServiceDesc, pubsubpb.Subscriber_ServiceDesc, pubsubpb.SchemaService_ServiceDesc, iampb.IAMPolicy_ServiceDesc,
	} {
		for _, method := range service.Methods {
			n, ok := want[method.MethodName]
			if !ok {
				n = 1
			}
			if got := routed["/"+service.ServiceName+"/"+method.MethodName]; got != n {
				t.Errorf("%s has %d routes, want %d", method.MethodName, got, n)
			}
		}
	}
}

func TestFindKeepsEscapedSlashes(t *testing.T) {
	t.Parallel()
	_, values, err := annotatedRoutes().find("GET", "/v1/projects/example.com:shop/topics/a%2Fb%2fc%7E")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"projects/example.com:shop/topics/a%2Fb%2fc~"}, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

// startREST serves REST over a gRPC server and returns its base URL.
func startREST(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(newREST(startGRPC(t)))
	t.Cleanup(server.Close)
	return server.URL
}

func startGRPC(t *testing.T) *grpc.ClientConn {
	t.Helper()
	fake := pstest.NewServer()
	t.Cleanup(func() { fake.Close() })
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxRESTBody))
	pubsubpb.RegisterPublisherServer(server, &fake.GServer)
	pubsubpb.RegisterSubscriberServer(server, &fake.GServer)
	pubsubpb.RegisterSchemaServiceServer(server, &fake.GServer)
	iampb.RegisterIAMPolicyServer(server, newPolicies(func(string) error { return nil }))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, method, url, body string) (code int, answer any) {
	t.Helper()
	request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}

// contains reports whether want is a part of got: of objects some members, of
// lists the first elements, of texts a part.
func contains(got, want any) bool {
	switch want := want.(type) {
	case object:
		got, ok := got.(object)
		for name, value := range want {
			ok = ok && contains(got[name], value)
		}
		return ok
	case []any:
		got, ok := got.([]any)
		for i := range want {
			ok = ok && i < len(got) && contains(got[i], want[i])
		}
		return ok
	case string:
		got, ok := got.(string)
		return ok && strings.Contains(got, want)
	default:
		return got == want
	}
}

package transcoding_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"example.com/lockstep/localpubsub"
)

// object is any JSON.
type object = map[string]any

func TestREST(t *testing.T) {
	t.Parallel()
	base := startREST(t)
	const topic, sub = "projects/p/topics/events", "projects/p/subscriptions/worker"
	failed := func(code int, status, message string) object {
		return object{"error": object{"code": float64(code), "status": status, "message": message}}
	}
	for _, step := range []struct {
		name, method, path, body string
		code                     int
		// want is a part of the answer; for a text, a substring.
		want object
	}{
		{"create", "PUT", topic, `{"labels":{"a":"1"}}`, 200, object{"name": "projects/p/topics/events", "labels": object{"a": "1"}}},
		{"create twice", "PUT", topic, `{}`, 409, failed(409, "ALREADY_EXISTS", "")},
		{"create without body", "PUT", "projects/p/topics/other", ``, 200, object{"name": "projects/p/topics/other"}},
		{"escaped name", "PUT", "projects/p/topics/one%25two", `{}`, 200, object{"name": "projects/p/topics/one%two"}},
		{"get", "GET", topic + "?alt=json&prettyPrint=false", ``, 200, object{"labels": object{"a": "1"}, "state": "ACTIVE"}},
		{"get with enums as numbers", "GET", topic + "?$alt=json%3Benum-encoding=int", ``, 200, object{"state": 1.0}},
		{"get with enums as names", "GET", topic + "?$alt=json%3Benum-encoding=string", ``, 400, failed(400, "INVALID_ARGUMENT", `"$alt"`)},
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
		{"field of a bad value", "PUT", topic + "y", `{"labels":{"A":"1"}}`, 400, object{"error": object{"details": []any{
			object{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": []any{object{"field": "labels"}}},
		}}}},
		{"no JSON in the body", "PUT", topic + "y", `{`, 400, failed(400, "INVALID_ARGUMENT", "JSON")},
		{"body where none belongs", "DELETE", topic, `{"a":1}`, 400, failed(400, "INVALID_ARGUMENT", "takes none")},
		{"page", "GET", "projects/p/topics?pageSize=1&pageToken=", ``, 200, object{"topics": []any{object{"name": "projects/p/topics/"}}}},
		{"bad page size", "GET", "projects/p/topics?pageSize=x", ``, 400, failed(400, "INVALID_ARGUMENT", `"pageSize"`)},
		{"parameter twice", "GET", "projects/p/topics?pageSize=1&pageSize=2", ``, 400, failed(400, "INVALID_ARGUMENT", "2 times")},
		{"unknown parameter", "GET", topic + "?nope=1", ``, 400, failed(400, "INVALID_ARGUMENT", `"nope"`)},
		{"parameter below a text", "GET", topic + "?topic.a=1", ``, 400, failed(400, "INVALID_ARGUMENT", `"topic"`)},
		{"other formats", "GET", topic + "?alt=proto", ``, 400, failed(400, "INVALID_ARGUMENT", `"alt"`)},
		{"no such path", "GET", "projects/p/things/t1", ``, 404, failed(404, "NOT_FOUND", "things")},
		{"no such verb", "POST", topic + ":shout", `{}`, 404, failed(404, "NOT_FOUND", "shout")},
		{"no such method", "POST", topic, `{}`, 404, failed(404, "NOT_FOUND", "POST")},
		{"subscription", "PUT", sub, `{"topic":"projects/p/topics/events","ackDeadlineSeconds":20,"expirationPolicy":{}}`, 200,
			object{"ackDeadlineSeconds": 20.0, "expirationPolicy": object{}}},
		{"publish", "POST", topic + ":publish", `{"messages":[{"data":"aGVsbG8=","attributes":{"k":"v"}}]}`, 200, object{"messageIds": []any{""}}},
		{"pull", "POST", sub + ":pull", `{"maxMessages":"10"}`, 200,
			object{"receivedMessages": []any{object{"message": object{"data": "aGVsbG8=", "attributes": object{"k": "v"}}}}}},
		{"list of a topic", "GET", topic + "/subscriptions", ``, 200, object{"subscriptions": []any{"projects/p/subscriptions/worker"}}},
		{"schema", "POST", "projects/p/schemas?schemaId=event", `{"type":"PROTOCOL_BUFFER","definition":"syntax = \"proto3\"; message Event {}"}`, 200,
			object{"name": "projects/p/schemas/event", "type": "PROTOCOL_BUFFER"}},
		{"enum by name", "GET", "projects/p/schemas/event?view=FULL", ``, 200, object{"definition": "message Event"}},
		{"enum by number", "GET", "projects/p/schemas/event?view=2", ``, 200, object{"definition": "message Event"}},
		{"no such enum", "GET", "projects/p/schemas/event?view=ALL", ``, 400, failed(400, "INVALID_ARGUMENT", `"view"`)},
		{"delete", "DELETE", topic, ``, 200, object{}},
	} {
		t.Run(step.name, func(t *testing.T) { // in this order: each step needs the ones before it
			code, got := send(t, step.method, base+step.path, step.body)
			if code != step.code || !contains(got, step.want) {
				t.Errorf("%s %s = %d %v, want %d %v", step.method, step.path, code, got, step.code, step.want)
			}
		})
	}
}

// TestRESTPolicies reads and sets the policies of the four kinds of resource as
// Terraform does.
func TestRESTPolicies(t *testing.T) {
	t.Parallel()
	base := startREST(t)
	const topic, subscription = "projects/p/topics/held", "projects/p/subscriptions/held"
	const role, member = "roles/pubsub.editor", "user:alice@example.com"
	const policy = `{"policy":{"etag":"ACAB","bindings":[{"role":"` + role + `","members":["` + member + `"]}]}}`
	steps := []struct {
		method, verb, body string
		code               int
		want               object
	}{
		{"GET", ":getIamPolicy?options.requestedPolicyVersion=3", "", 200, object{"etag": "ACAB"}},
		{"POST", ":setIamPolicy", policy, 200, object{"version": 1.0, "bindings": []any{object{"role": role, "members": []any{member}}}}},
		{"POST", ":setIamPolicy", policy, 409, object{"error": object{"status": "ABORTED"}}},
		{"POST", ":testIamPermissions", `{"permissions":["a.b.c"]}`, 200, object{"permissions": []any{"a.b.c"}}},
		{"DELETE", "", "", 200, object{}},
		{"GET", ":getIamPolicy", "", 404, object{"error": object{"status": "NOT_FOUND"}}},
	}
	// Each entry needs the ones above it.
	for _, held := range []struct{ name, method, path, body string }{
		{topic, "PUT", topic, `{}`},
		{subscription, "PUT", subscription, `{"topic":"` + topic + `"}`},
		{"projects/p/snapshots/held", "PUT", "projects/p/snapshots/held", `{"subscription":"` + subscription + `"}`},
		{"projects/p/schemas/held", "POST", "projects/p/schemas?schemaId=held", `{"type":"PROTOCOL_BUFFER","definition":"syntax = \"proto3\"; message M {}"}`},
	} {
		create := func() {
			if code, got := send(t, held.method, base+held.path, held.body); code != http.StatusOK {
				t.Fatalf("create %s = %d %v", held.name, code, got)
			}
		}
		create()
		for _, step := range steps {
			if code, got := send(t, step.method, base+held.name+step.verb, step.body); code != step.code || !contains(got, step.want) {
				t.Errorf("%s%s: %s = %d %v, want %d %v", held.name, step.verb, step.method, code, got, step.code, step.want)
			}
		}
		create() // a new resource of the name has no policy yet
		if code, got := send(t, "GET", base+held.name+":getIamPolicy", ""); code != http.StatusOK || !contains(got, object{"etag": "ACAB"}) {
			t.Errorf("%s again: policy = %d %v, want none", held.name, code, got)
		}
	}
}

func TestForgetDropsPolicies(t *testing.T) {
	t.Parallel()
	server := start(t)
	url := "http://" + server.Addr() + "/v1/projects/p/topics/held"
	const policy = `{"policy":{"bindings":[{"role":"roles/viewer","members":["allUsers"]}]}}`
	send(t, "PUT", url, `{}`)
	if code, got := send(t, "POST", url+":setIamPolicy", policy); code != http.StatusOK {
		t.Fatalf("set = %d %v", code, got)
	}
	server.Forget()
	send(t, "PUT", url, `{}`)
	if code, got := send(t, "GET", url+":getIamPolicy", ""); code != http.StatusOK || !contains(got, object{"etag": "ACAB"}) {
		t.Errorf("policy after Forget = %d %v, want none", code, got)
	}
}

func TestRESTBoundsBodies(t *testing.T) {
	t.Parallel()
	body := `{"messages":[{"data":"` + strings.Repeat("A", 11<<20) + `"}]}`
	code, got := send(t, "POST", startREST(t)+"projects/p/topics/events:publish", body)
	want := object{"error": object{"status": "INVALID_ARGUMENT", "message": "bytes"}}
	if code != http.StatusBadRequest || !contains(got, want) {
		t.Errorf("%d bytes = %d %v, want 400", len(body), code, got)
	}
}

// TestRESTReadsGzip: a body may be compressed with gzip. Its bound counts the bytes of the JSON text.
func TestRESTReadsGzip(t *testing.T) {
	t.Parallel()
	base := startREST(t)
	if code, got := send(t, "PUT", base+"projects/p/topics/events", "{}"); code != http.StatusOK {
		t.Fatal(code, got)
	}
	publish := func(encoding, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", base+"projects/p/topics/events:publish", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Encoding", encoding)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	zipped := func(body string) string {
		var packed strings.Builder
		zip := gzip.NewWriter(&packed)
		if _, err := io.WriteString(zip, body); err != nil {
			t.Fatal(err)
		}
		if err := zip.Close(); err != nil {
			t.Fatal(err)
		}
		return packed.String()
	}
	const small = `{"messages":[{"data":"aGVsbG8="}]}`
	for _, test := range []struct {
		encoding, body string
		code           int
		text           string
	}{
		{"gzip", zipped(small), http.StatusOK, "messageIds"},
		{"identity", small, http.StatusOK, "messageIds"},
		{"gzip", small, http.StatusBadRequest, "gzip"},
		{"gzip", zipped(small)[:20], http.StatusBadRequest, "unexpected EOF"},
		{"br", small, http.StatusBadRequest, "Content-Encoding"},
		{"gzip", zipped(`{"messages":[{"data":"` + strings.Repeat("A", 11<<20) + `"}]}`), http.StatusBadRequest, "more than 11534336 bytes"},
	} {
		if code, got := publish(test.encoding, test.body); code != test.code || !strings.Contains(got, test.text) {
			t.Errorf("%s: %.40q = %d %s, want %d %s", test.encoding, test.body, code, got, test.code, test.text)
		}
	}
}

// TestRESTHasTheSameFaults shows that an injected outage also reaches
// Terraform.
func TestRESTHasTheSameFaults(t *testing.T) {
	t.Parallel()
	server := start(t)
	if err := server.SetFaults(1, localpubsub.Fault{Kind: localpubsub.Outage}); err != nil {
		t.Fatal(err)
	}
	code, got := send(t, "GET", "http://"+server.Addr()+"/v1/projects/p/topics", "")
	if code != http.StatusServiceUnavailable || !contains(got, object{"error": object{"status": "UNAVAILABLE"}}) {
		t.Errorf("list in an outage = %d %v, want 503", code, got)
	}
}

func start(t *testing.T) *localpubsub.Server {
	t.Helper()
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// startREST returns the base URL of a new server.
func startREST(t *testing.T) string {
	t.Helper()
	return "http://" + start(t).Addr() + "/v1/"
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

// contains reports whether want is a part of got: for objects some members, for
// lists the first elements, for texts a substring.
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

package transcoding

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// A route is one HTTP binding of a unary method.
// https://github.com/googleapis/googleapis/blob/master/google/api/http.proto
type route struct {
	method        string // "/package.Service/Method"
	input, output protoreflect.MessageType
	// path matches an escaped path without its verb. It has one group for each name in variables.
	// Each name is the dotted path of the field that the group sets.
	path      *regexp.Regexp
	variables []string
	// body is the name of the field that the request's body sets. "*" means the whole message. ""
	// means that the method takes no body.
	body string
}

// routes has the routes by HTTP method and verb. A key is, for example, "POST:publish" or "GET:".
type routes map[string][]route

// find returns the route of an escaped path, and the values of the route's variables in their
// order.
func (rs routes) find(method, path string) (route, []string, error) {
	resource, verb := cutVerb(path)
	for _, r := range rs[method+":"+verb] {
		groups := r.path.FindStringSubmatch(resource)
		if groups == nil {
			continue
		}
		values := groups[1:]
		for i, value := range values {
			decoded, err := unescapeVariable(value)
			if err != nil {
				return route{}, nil, status.Errorf(codes.InvalidArgument, "path: %v", err)
			}
			values[i] = decoded
		}
		return r, values, nil
	}
	return route{}, nil, status.Errorf(codes.NotFound, "no method has the path %s %s", method, path)
}

// cutVerb splits a path into the resource and the verb, such as "publish" in a path that ends in
// ":publish". A colon before the last slash belongs to a project such as example.com:acme.
func cutVerb(path string) (resource, verb string) {
	colon := strings.LastIndexByte(path, ':')
	if colon <= strings.LastIndexByte(path, '/') {
		return path, ""
	}
	return path[:colon], path[colon+1:]
}

// unescapeVariable unescapes the value of a variable. An escaped slash stays escaped, because it
// does not separate parts of a name.
func unescapeVariable(value string) (string, error) {
	kept := strings.NewReplacer("%2F", "%252F", "%2f", "%252f").Replace(value)
	return url.PathUnescape(kept)
}

// annotatedRoutes returns the routes of all services that this server offers.
func annotatedRoutes() routes {
	all := make(routes)
	for _, file := range []protoreflect.FileDescriptor{
		pubsubpb.File_google_pubsub_v1_pubsub_proto, pubsubpb.File_google_pubsub_v1_schema_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				all.add(methods.Get(j), proto.GetExtension(methods.Get(j).Options(), annotations.E_Http).(*annotations.HttpRule))
			}
		}
	}
	methods := iampb.File_google_iam_v1_iam_policy_proto.Services().ByName("IAMPolicy").Methods()
	for _, kind := range []string{"topics", "subscriptions", "schemas", "snapshots"} {
		for name, rule := range iamRules("/v1/{resource=projects/*/" + kind + "/*}") {
			all.add(methods.ByName(name), rule)
		}
	}
	return all
}

// iamRules returns the HTTP rules of IAM's methods, as in the service configuration of Pub/Sub. The
// annotations of IAM itself name no resources, and have no GET.
// https://cloud.google.com/pubsub/docs/reference/rest/v1/projects.topics/getIamPolicy
func iamRules(resource string) map[protoreflect.Name]*annotations.HttpRule {
	post := func(verb string) *annotations.HttpRule {
		return &annotations.HttpRule{Pattern: &annotations.HttpRule_Post{Post: resource + ":" + verb}, Body: "*"}
	}
	return map[protoreflect.Name]*annotations.HttpRule{
		"GetIamPolicy":       {Pattern: &annotations.HttpRule_Get{Get: resource + ":getIamPolicy"}},
		"SetIamPolicy":       post("setIamPolicy"),
		"TestIamPermissions": post("testIamPermissions"),
	}
}

// add adds the routes of the rule and of its additional bindings. A method without a rule, such as
// StreamingPull, gets no route.
func (rs routes) add(method protoreflect.MethodDescriptor, rule *annotations.HttpRule) {
	if rule == nil {
		return
	}
	service := method.Parent().FullName()
	path, variables, verb := compileTemplate(cmp.Or(rule.GetGet(), rule.GetPut(), rule.GetPost(), rule.GetDelete(), rule.GetPatch()))
	key := httpMethod(rule) + ":" + verb
	rs[key] = append(rs[key], route{
		method: fmt.Sprintf("/%s/%s", service, method.Name()),
		input:  dynamicpb.NewMessageType(method.Input()), output: dynamicpb.NewMessageType(method.Output()),
		path: path, variables: variables, body: rule.GetBody(),
	})
	for _, further := range rule.GetAdditionalBindings() {
		rs.add(method, further)
	}
}

func httpMethod(rule *annotations.HttpRule) string {
	field := rule.ProtoReflect().WhichOneof(rule.ProtoReflect().Descriptor().Oneofs().ByName("pattern"))
	return strings.ToUpper(string(field.Name()))
}

// variable matches a {field} or {field=pattern} in a template.
var variable = regexp.MustCompile(`\{([a-z0-9_.]+)(?:=([^}]*))?\}`)

// wildcards translates the wildcards of a template into regular expressions.
var wildcards = strings.NewReplacer("**", ".+", "*", "[^/]+")

// compileTemplate turns a template such as "/v1/{topic.name=projects/*/topics/*}:verb" into an
// expression with one group for each variable. The literal parts of a template are letters, digits
// and slashes.
func compileTemplate(template string) (path *regexp.Regexp, variables []string, verb string) {
	template, verb = cutVerb(template)
	expression := variable.ReplaceAllStringFunc(template, func(s string) string {
		parts := variable.FindStringSubmatch(s)
		variables = append(variables, parts[1])
		return "(" + wildcards.Replace(cmp.Or(parts[2], "*")) + ")"
	})
	return regexp.MustCompile("^" + expression + "$"), variables, verb
}

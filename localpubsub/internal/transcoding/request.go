package transcoding

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// systemParameters may occur in any query. They do not change the effect of a method. The system
// parameters fields and callback would change the form of the answer. They are not in the list, so
// they are refused as unknown. https://cloud.google.com/apis/docs/system-parameters
var systemParameters = map[string]bool{
	"$prettyPrint": true, "prettyPrint": true, "$.xgafv": true, "$userProject": true, "quotaUser": true,
	"access_token": true, "oauth_token": true, "key": true, "upload_protocol": true, "uploadType": true,
}

// These are the values of the parameter alt, the format of an answer. With formatNumbers, enums are
// numbers and not names. The REST transports of Google's client libraries send formatNumbers with each
// call.
const (
	formatJSON    = "json"
	formatNumbers = "json;enum-encoding=int"
)

func wantsNumbers(query url.Values) bool {
	return query.Get("alt") == formatNumbers || query.Get("$alt") == formatNumbers
}

// request builds the message of the call from the body, then the query, then the path. A later
// source overwrites the fields of an earlier source. The query counts even if the body is "*",
// because Google's clients send update masks in the query then.
func (r route) request(path []string, query string, body []byte) (proto.Message, error) {
	message := r.input.New()
	if err := r.setBody(message, body); err != nil {
		return nil, err
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "query: %v", err)
	}
	for name, values := range parameters {
		switch format := strings.TrimPrefix(name, "$"); {
		case systemParameters[name]:
		case format == "alt" && (values[0] == formatJSON || values[0] == formatNumbers):
		default:
			if err := setField(message, name, values); err != nil {
				return nil, status.Errorf(codes.InvalidArgument, "query parameter %q: %v", name, err)
			}
		}
	}
	for i, name := range r.variables {
		if err := setField(message, name, path[i:i+1]); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "path: %s: %v", name, err)
		}
	}
	return message.Interface(), nil
}

func (r route) setBody(message protoreflect.Message, body []byte) error {
	switch body = bytes.TrimSpace(body); {
	case len(body) == 0:
		return nil
	case r.body == "":
		return status.Error(codes.InvalidArgument, "the request has a body, and the method takes none")
	case r.body != "*":
		field := message.Descriptor().Fields().ByName(protoreflect.Name(r.body))
		message = message.Mutable(field).Message()
	}
	body, err := camelCaseMask(body, message.Descriptor())
	if err == nil {
		err = protojson.Unmarshal(body, message.Interface())
	}
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "Invalid JSON payload received: %s", jsonError(err))
	}
	return nil
}

// camelCaseMask converts the update mask in a body from snake_case to camelCase. The service
// accepts both forms, but protojson accepts camelCase only.
func camelCaseMask(body []byte, message protoreflect.MessageDescriptor) ([]byte, error) {
	if message.Fields().ByName("update_mask") == nil {
		return body, nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, err
	}
	for _, name := range []string{"updateMask", "update_mask"} {
		if mask, ok := object[name]; ok {
			object[name] = json.RawMessage(camelCase(string(mask)))
		}
	}
	return json.Marshal(object)
}

var underscored = regexp.MustCompile(`_[a-z]`)

func camelCase(paths string) string {
	return underscored.ReplaceAllStringFunc(paths, func(s string) string { return strings.ToUpper(s[1:]) })
}

// setField sets the field at a dotted path. The names in the path may be JSON names or proto names.
func setField(message protoreflect.Message, path string, values []string) error {
	names := strings.Split(path, ".")
	for i, name := range names {
		field := fieldNamed(message.Descriptor(), name)
		if field == nil {
			return fmt.Errorf("%s has no field %q", message.Descriptor().FullName(), name)
		}
		if i == len(names)-1 {
			return setLeaf(message, field, values)
		}
		if field.Message() == nil || field.IsList() || field.IsMap() {
			return fmt.Errorf("%q has no fields of its own", field.JSONName())
		}
		message = message.Mutable(field).Message()
	}
	return nil
}

func fieldNamed(message protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := message.Fields().ByJSONName(name); field != nil {
		return field
	}
	return message.Fields().ByName(protoreflect.Name(name))
}

// setLeaf sets a field to the values. It parses them with protojson, so that enums, durations and
// masks have the same form as in a body.
func setLeaf(message protoreflect.Message, field protoreflect.FieldDescriptor, values []string) error {
	literals := make([]any, len(values))
	for i, value := range values {
		literals[i] = literal(field, value)
	}
	var encoded any = literals
	if !field.IsList() {
		if len(values) != 1 {
			return fmt.Errorf("is given %d times", len(values))
		}
		encoded = literals[0]
	}
	object, err := json.Marshal(map[string]any{field.JSONName(): encoded})
	if err != nil {
		return err
	}
	parsed := message.New()
	if err := protojson.Unmarshal(object, parsed.Interface()); err != nil {
		return fmt.Errorf("%q is not valid: %s", strings.Join(values, ","), jsonError(err))
	}
	message.Set(field, parsed.Get(field))
	return nil
}

// literal returns value in the JSON type that protojson expects for the field. Booleans and numbers
// of enums are not quoted. All other values are strings, including other numbers. A mask may be in
// snake_case.
func literal(field protoreflect.FieldDescriptor, value string) any {
	switch kind, message := field.Kind(), field.Message(); {
	case kind == protoreflect.BoolKind && (value == "true" || value == "false"):
		return value == "true"
	case kind == protoreflect.EnumKind:
		if number, err := strconv.ParseInt(value, 10, 32); err == nil {
			return number
		}
	case message != nil && message.FullName() == "google.protobuf.FieldMask":
		return camelCase(value)
	}
	return value
}

// jsonError returns the message of a protojson error without its prefix. protojson deliberately
// varies the space in the prefix, so that no program compares the message.
func jsonError(err error) string {
	return strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
}

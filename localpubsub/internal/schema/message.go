package schema

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// noTypes is an empty registry. It keeps types that happen to be linked into
// this process out of the validation.
var noTypes = new(protoregistry.Types)

// validBinary checks that data is a message of the type. It refuses fields that
// the type does not have, and fields with another wire type, at any depth
// except in the entries of maps. Protobuf parsers skip such fields. Google's
// pages leave open whether the service refuses them. Users report for 2026 that
// it does, at https://github.com/Rtosshy/gcp-test (README.md, experiment 6) and
// https://github.com/apollo-chora/chora-contracts
// (scripts/verify-schema-registry.sh). Bytes after the last field are refused,
// too, as such fields or as malformed data.
func validBinary(root protoreflect.MessageDescriptor, data []byte) error {
	m := dynamicpb.NewMessage(root)
	if err := (proto.UnmarshalOptions{Resolver: noTypes}).Unmarshal(data, m); err != nil {
		return err
	}
	return known(m)
}

// validJSON checks that data is a message of the type in protobuf's JSON form.
// The parser refuses unknown fields, which is the default
// (https://protobuf.dev/programming-guides/json/), and text after the object.
func validJSON(root protoreflect.MessageDescriptor, data []byte) error {
	return (protojson.UnmarshalOptions{Resolver: noTypes}).Unmarshal(data, dynamicpb.NewMessage(root))
}

// known returns an error if m, or a message within m, has a field without
// declaration.
func known(m protoreflect.Message) error {
	if extra := m.GetUnknown(); len(extra) > 0 {
		number, _, _ := protowire.ConsumeField(extra)
		return fmt.Errorf("%s has no field of number %d and this wire type", m.Descriptor().FullName(), number)
	}
	var err error
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		err = knownWithin(field, value)
		return err == nil
	})
	return err
}

func knownWithin(field protoreflect.FieldDescriptor, value protoreflect.Value) (err error) {
	switch {
	case field.IsMap():
		value.Map().Range(func(_ protoreflect.MapKey, entry protoreflect.Value) bool {
			err = knownValue(field.MapValue(), entry)
			return err == nil
		})
	case field.IsList():
		for i := 0; i < value.List().Len() && err == nil; i++ {
			err = knownValue(field, value.List().Get(i))
		}
	default:
		err = knownValue(field, value)
	}
	return err
}

// knownValue checks the messages within value, and refuses values that a closed
// enum does not have. Protobuf calls a field with such a value unknown
// (https://protobuf.dev/programming-guides/enum/), although Go sets it.
func knownValue(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch {
	case field.Message() != nil:
		return known(value.Message())
	case field.Enum() != nil && field.Enum().IsClosed() && field.Enum().Values().ByNumber(value.Enum()) == nil:
		return fmt.Errorf("%s: %d is no value of %s", field.FullName(), value.Enum(), field.Enum().FullName())
	}
	return nil
}

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

// noTypes is an empty registry. With it, the validation does not use types that are linked into
// this process by chance.
var noTypes = new(protoregistry.Types)

// validBinary returns an error unless data is a message of the type root. It refuses fields that
// the type does not have, and fields with another wire type, at any depth except in the entries of
// maps. Protobuf parsers skip such fields. Google's pages do not say whether the service refuses
// them. Users reported in 2026 that it does, at https://github.com/Rtosshy/gcp-test (README.md,
// experiment 6) and https://github.com/apollo-chora/chora-contracts
// (scripts/verify-schema-registry.sh). Bytes after the last field are refused, too. They are parsed
// as such fields, or are malformed.
func validBinary(root protoreflect.MessageDescriptor, data []byte) error {
	m := dynamicpb.NewMessage(root)
	if err := (proto.UnmarshalOptions{Resolver: noTypes}).Unmarshal(data, m); err != nil {
		return err
	}
	return known(m)
}

// validJSON returns an error unless data is a message of the type root in protobuf's JSON form. The
// parser refuses unknown fields, which is the default
// (https://protobuf.dev/programming-guides/json/). It also refuses text after the object.
func validJSON(root protoreflect.MessageDescriptor, data []byte) error {
	return (protojson.UnmarshalOptions{Resolver: noTypes}).Unmarshal(data, dynamicpb.NewMessage(root))
}

// known returns an error if m or a message within m has a field that its type does not declare.
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

// knownValue checks the messages within value. It also refuses a value that a closed enum does not
// declare. Protobuf treats a field with such a value as an unknown field
// (https://protobuf.dev/programming-guides/enum/), although Go sets the field.
func knownValue(field protoreflect.FieldDescriptor, value protoreflect.Value) error {
	switch {
	case field.Message() != nil:
		return known(value.Message())
	case field.Enum() != nil && field.Enum().IsClosed() && field.Enum().Values().ByNumber(value.Enum()) == nil:
		return fmt.Errorf("%s: %d is no value of %s", field.FullName(), value.Enum(), field.Enum().FullName())
	}
	return nil
}

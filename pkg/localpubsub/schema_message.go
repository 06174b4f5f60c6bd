package localpubsub

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// noTypes keeps the types that this process happens to link out of the judgement.
var noTypes = new(protoregistry.Types)

// validBinary tells whether data is a message of the type. What protobuf parsers
// skip is refused: fields that the type does not have, and those whose wire type is
// another, at any depth but in the entries of maps. Google's pages leave that open;
// who tried it reports it of 2026, at
// https://github.com/Rtosshy/gcp-test (README.md, experiment 6) and
// https://github.com/apollo-chora/chora-contracts (scripts/verify-schema-registry.sh).
// So bytes behind the last field are fields too, or none at all, and refused as such.
func validBinary(root protoreflect.MessageDescriptor, data []byte) error {
	m := dynamicpb.NewMessage(root)
	if err := (proto.UnmarshalOptions{Resolver: noTypes}).Unmarshal(data, m); err != nil {
		return err
	}
	return known(m)
}

// validJSON tells whether data is a message of the type in protobuf's JSON. Unknown
// fields are refused, which is the default of its parsers
// (https://protobuf.dev/programming-guides/json/), and so is text behind the object.
func validJSON(root protoreflect.MessageDescriptor, data []byte) error {
	return (protojson.UnmarshalOptions{Resolver: noTypes}).Unmarshal(data, dynamicpb.NewMessage(root))
}

// known names a field that m, or a message within it, has no declaration of.
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

// knownValue goes into messages, and refuses values that a closed enum does not
// have: protobuf calls the field unknown then
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

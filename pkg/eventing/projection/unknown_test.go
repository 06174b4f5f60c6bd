package projection_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing/projection"
)

// newer is m as a newer build writes it: with a field that this build does not know.
func newer[M proto.Message](m M) M {
	m.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 1}) // field 2047: 1
	return m
}

func TestHasUnknown(t *testing.T) {
	t.Parallel()
	list := func(values ...*structpb.Value) *structpb.Value {
		return structpb.NewListValue(&structpb.ListValue{Values: values})
	}
	in := func(v *structpb.Value) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(1), "b": v}}
	}
	for _, c := range []struct {
		name string
		m    proto.Message
		want bool
	}{
		{"nothing", &timestamppb.Timestamp{}, false},
		{"known fields", in(list(structpb.NewStringValue("x"))), false},
		{"at the top", newer(in(structpb.NewNullValue())), true},
		{"in a map", in(newer(structpb.NewNullValue())), true},
		{"in a list", in(list(structpb.NewNullValue(), newer(structpb.NewNullValue()), structpb.NewNullValue())), true},
		{"in a list, the last", in(list(structpb.NewNullValue(), newer(structpb.NewNullValue()))), true},
		{"deep down", in(list(structpb.NewStructValue(in(list(newer(structpb.NewBoolValue(true))))))), true},
	} {
		if got := projection.HasUnknown(c.m); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestRevisionCountsFields(t *testing.T) {
	t.Parallel()
	if got := projection.Revision(&timestamppb.Timestamp{}, &structpb.Struct{}, &structpb.Value{}); got != 2+1+(6+1+1) {
		t.Errorf("%d", got)
	}
}

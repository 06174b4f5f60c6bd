package serve

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"

	"example.com/lockstep/internal/problem"
)

func TestElementsAreCountedBeforeDecoding(t *testing.T) {
	t.Parallel()
	list := func(n int) *structpb.ListValue { return &structpb.ListValue{Values: make([]*structpb.Value, n)} }
	numbers := func(n int) *descriptorpb.SourceCodeInfo {
		return &descriptorpb.SourceCodeInfo{Location: []*descriptorpb.SourceCodeInfo_Location{{Path: make([]int32, n)}}}
	}
	members := func(n int) *structpb.Struct {
		s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for i := range n {
			s.Fields[fmt.Sprint(i)] = structpb.NewNullValue()
		}
		return s
	}
	nested := func(n int) *structpb.Value {
		v := structpb.NewNullValue()
		for range n {
			v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}})
		}
		return v
	}
	for name, tc := range map[string]struct {
		message proto.Message
		field   string
	}{
		"texts":             {&fieldmaskpb.FieldMask{Paths: make([]string, 100)}, ""},
		"too many texts":    {&fieldmaskpb.FieldMask{Paths: make([]string, 101)}, "paths"},
		"messages":          {list(100), ""},
		"too many messages": {list(101), "values"},
		"too many in two":   {structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewListValue(list(60)), structpb.NewListValue(list(60))}}), "list_value.values.list_value.values"},
		"map":               {members(100), ""},
		"too large a map":   {members(101), "fields"},
		"packed numbers":    {numbers(99), ""},
		"too many packed":   {numbers(100), "location.path"},
		"nested":            {nested(16), ""},
		"nested too deeply": {nested(17), "list_value.values"},
		"far too deeply":    {nested(5000), "list_value.values"},
	} {
		data, err := proto.Marshal(tc.message)
		if err != nil {
			t.Fatal(err)
		}
		got := checkElements(data, tc.message.ProtoReflect().Descriptor())
		var p *problem.Error
		switch {
		case tc.field == "" && got != nil:
			t.Errorf("%s: %v", name, got)
		case tc.field != "" && (!errors.As(got, &p) || p.Code != problem.CodeInvalid || !strings.HasPrefix(p.Fields[0].Field, tc.field)):
			t.Errorf("%s: %v, want %s blamed", name, got, tc.field)
		}
	}
}

func TestUnknownFieldsAreNotElements(t *testing.T) {
	t.Parallel()
	var data []byte
	for range 1000 {
		data = protowire.AppendVarint(protowire.AppendTag(data, 1000, protowire.VarintType), 1)
	}
	if err := checkElements(data, (&fieldmaskpb.FieldMask{}).ProtoReflect().Descriptor()); err != nil {
		t.Errorf("a newer client's request: %v", err)
	}
}

// A message that passes the count decodes to no more elements than that.
func FuzzElements(f *testing.F) {
	types := []proto.Message{&fieldmaskpb.FieldMask{}, &structpb.Struct{}, &structpb.Value{}, &descriptorpb.SourceCodeInfo{}}
	for i, m := range types {
		f.Add(i, []byte("\x0a\x03\x0a\x01\x08"))
		data, _ := proto.Marshal(m)
		f.Add(i, data)
	}
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		into := proto.Clone(types[max(which%len(types), 0)])
		if checkElements(data, into.ProtoReflect().Descriptor()) != nil || proto.Unmarshal(data, into) != nil {
			return
		}
		if n, deep := sizeOf(into.ProtoReflect()); n > maxElements || deep > maxNesting {
			t.Errorf("%d elements, %d deep, have passed", n, deep)
		}
	})
}

// sizeOf counts the elements of a decoded message, and the messages within it one in
// another.
func sizeOf(m protoreflect.Message) (n, deep int) {
	within := func(v protoreflect.Value) {
		more, deeper := sizeOf(v.Message())
		n, deep = n+more, max(deep, deeper+1)
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			n += v.Map().Len()
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if f.MapValue().Message() != nil {
					within(v)
				}
				return true
			})
		case f.IsList():
			n += v.List().Len()
			for i := range v.List().Len() {
				if f.Message() != nil {
					within(v.List().Get(i))
				}
			}
		case f.Message() != nil:
			within(v)
		}
		return true
	})
	return n, deep
}

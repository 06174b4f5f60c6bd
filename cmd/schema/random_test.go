package main

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// texts break code that counts bytes as characters, or that trims.
var texts = []string{
	"", "a", " ", "\x00", "\x7f", "\"quoted\"\\\n\t", "Größe", "naïve", "e\u0301\u0323", "日本語", "שלום", "\u202eabc", "🎬👩‍👩‍👧", "\U0010ffff", "\ufeff", "\ufffd",
	strings.Repeat("long ", 2_000), strings.Repeat("🎬", 300),
}

var integers = []int64{0, 1, -1, 127, 128, 1 << 31, math.MinInt32, math.MaxInt32, math.MinInt64, math.MaxInt64, 253402300799, -62135596800}

// random sets each field of m or leaves it out, and takes the arms of a oneof
// in turn, including none of them. It does not know the meaning of the fields.
func random(t testing.TB, r *rand.Rand, turn int, m protoreflect.Message) {
	t.Helper()
	for oneof := range all(m.Descriptor().Oneofs()) {
		if arm := turn % (oneof.Fields().Len() + 1); !oneof.IsSynthetic() && arm > 0 {
			set(t, r, turn, m, oneof.Fields().Get(arm-1))
		}
	}
	for field := range all(m.Descriptor().Fields()) {
		if in := field.ContainingOneof(); in != nil && !in.IsSynthetic() || r.IntN(4) == 0 {
			continue
		}
		set(t, r, turn, m, field)
	}
}

func set(t testing.TB, r *rand.Rand, turn int, m protoreflect.Message, f protoreflect.FieldDescriptor) {
	t.Helper()
	switch {
	case f.IsList():
		list := m.Mutable(f).List()
		for range r.IntN(4) {
			list.Append(value(t, r, turn, f, list.NewElement))
		}
	case f.IsMap():
		entries := m.Mutable(f).Map()
		for range r.IntN(4) {
			key := value(t, r, turn, f.MapKey(), nil).MapKey()
			entries.Set(key, value(t, r, turn, f.MapValue(), entries.NewValue))
		}
	default:
		m.Set(f, value(t, r, turn, f, func() protoreflect.Value { return m.NewField(f) }))
	}
}

func value(t testing.TB, r *rand.Rand, turn int, f protoreflect.FieldDescriptor, empty func() protoreflect.Value) protoreflect.Value {
	t.Helper()
	integer := integers[r.IntN(len(integers))]
	switch f.Kind() {
	case protoreflect.MessageKind:
		v := empty()
		random(t, r, turn/2, v.Message())
		return v
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(texts[r.IntN(len(texts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0xff, byte(integer), 0})
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		if r.IntN(8) == 0 { // a value that is not declared yet
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(integer))
		}
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(r.IntN(values.Len())).Number())
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(integer))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(integer)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(integer))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(integer))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(float64(integer) / 3)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(integer) / 3)
	default:
		t.Fatalf("%s is of kind %v", f.FullName(), f.Kind())
		return protoreflect.Value{}
	}
}

// A census counts how often each field was set or unset where it could have
// been set.
type census map[protoreflect.FullName]*struct{ set, unset int }

func (c census) take(m protoreflect.Message) {
	for field := range all(m.Descriptor().Fields()) {
		if c[field.FullName()] == nil {
			c[field.FullName()] = new(struct{ set, unset int })
		}
		if !m.Has(field) {
			c[field.FullName()].unset++
			continue
		}
		c[field.FullName()].set++
		if field.Message() != nil && !field.IsList() && !field.IsMap() {
			c.take(m.Get(field).Message())
		}
	}
}

// plain returns the content of m by field names, without its types: an enum is
// its number.
func plain(m protoreflect.Message) map[protoreflect.Name]any {
	said := map[protoreflect.Name]any{}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList():
			var elements []any
			for i := range v.List().Len() {
				elements = append(elements, plainValue(f, v.List().Get(i)))
			}
			said[f.Name()] = elements
		case f.IsMap():
			entries := map[any]any{}
			v.Map().Range(func(key protoreflect.MapKey, entry protoreflect.Value) bool {
				entries[key.Interface()] = plainValue(f.MapValue(), entry)
				return true
			})
			said[f.Name()] = entries
		default:
			said[f.Name()] = plainValue(f, v)
		}
		return true
	})
	return said
}

func plainValue(f protoreflect.FieldDescriptor, v protoreflect.Value) any {
	switch {
	case f.Message() != nil:
		return plain(v.Message())
	case f.Enum() != nil:
		return int32(v.Enum())
	default:
		return v.Interface()
	}
}

// unknown returns the name of a message within m, or of m itself, that has
// fields which its type does not declare.
func unknown(m protoreflect.Message) (where protoreflect.FullName) {
	if len(m.GetUnknown()) > 0 {
		return m.Descriptor().FullName()
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := 0; i < v.List().Len() && where == ""; i++ {
				where = unknown(v.List().Get(i).Message())
			}
		default:
			where = unknown(v.Message())
		}
		return where == ""
	})
	return where
}

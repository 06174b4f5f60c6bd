package serve

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
)

const (
	// maxElements bounds the elements of all repeated fields of a request together. An empty
	// element is two bytes on the wire and up to some hundred bytes in memory.
	maxElements = rest.MaxElements
	// maxNesting bounds how deep messages are nested in messages.
	maxNesting = 32
)

// elements counts the elements of a message's repeated fields before the decoder allocates them.
// left is how many more elements the request may have.
type elements struct{ left int }

// checkElements checks data, a message of the given type. If the message has too many elements
// or is nested too deeply, the returned error names the field. Data that is not well-formed is
// left to the decoder.
func checkElements(data []byte, of protoreflect.MessageDescriptor) error {
	e := elements{left: maxElements}
	field, deep := e.check(data, of, maxNesting)
	switch {
	case field == "":
		return nil
	case deep:
		return problem.Invalid(field, fmt.Sprintf("must not be nested more than %d deep", maxNesting))
	}
	return problem.Invalid(field, fmt.Sprintf("must leave the request with at most %d elements", maxElements))
}

// check returns the path of the faulty field, or the empty string. deep means that the fault is the
// nesting, not the number of elements. depth is how many further levels of nesting are allowed.
func (e *elements) check(data []byte, of protoreflect.MessageDescriptor, depth int) (path string, deep bool) {
	for len(data) > 0 {
		number, wire, n := protowire.ConsumeTag(data)
		if n < 0 {
			return "", false
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(number, wire, data); n < 0 {
			return "", false
		}
		value := data[:n]
		data = data[n:]
		f := of.Fields().ByNumber(number)
		if f == nil {
			continue // an unknown field is kept as one piece of bytes
		}
		if f.Cardinality() == protoreflect.Repeated {
			if e.left -= count(f, wire, value); e.left < 0 {
				return string(f.Name()), false
			}
		}
		if f.Message() == nil || wire != protowire.BytesType {
			continue
		}
		if depth == 0 {
			return string(f.Name()), true
		}
		inner, _ := protowire.ConsumeBytes(value) // well-formed, because ConsumeFieldValue has measured it
		if at, deep := e.check(inner, f.Message(), depth-1); at != "" {
			return string(f.Name()) + "." + at, deep
		}
	}
	return "", false
}

// count returns the number of elements in value. The number is 1 unless value is a packed list of
// numbers.
func count(f protoreflect.FieldDescriptor, wire protowire.Type, value []byte) int {
	if wire != protowire.BytesType {
		return 1
	}
	packed, _ := protowire.ConsumeBytes(value) // well-formed, because check has measured it
	switch f.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind, protoreflect.GroupKind:
		return 1
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		return len(packed) / 4
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		return len(packed) / 8
	default: // varints
	}
	ends := 0
	for _, b := range packed {
		if b < 0x80 {
			ends++
		}
	}
	return ends
}

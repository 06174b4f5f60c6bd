package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// flatten prints root as a self-contained file. The package comment has the rules.
func flatten(w io.Writer, root protoreflect.MessageDescriptor) error {
	n := nest{names: map[protoreflect.Name]protoreflect.FullName{}}
	if err := n.add(root, nil); err != nil {
		return err
	}
	fmt.Fprintf(w, "syntax = \"proto3\";\n\n")
	p := printer{w: w}
	p.linef("message %s {", root.Name())
	p.indent++
	p.body(root)
	for _, m := range n.messages[1:] {
		p.linef("")
		p.linef("message %s {", m.Name())
		p.indent++
		p.body(m)
		p.indent--
		p.linef("}")
	}
	p.indent--
	p.linef("}")
	return nil
}

// A nest is the root and all messages that it needs, in the order of their first use.
type nest struct {
	messages []protoreflect.MessageDescriptor
	names    map[protoreflect.Name]protoreflect.FullName
}

// add adds m and the messages that m contains. path has the messages that lead from the root to m.
func (n *nest) add(m protoreflect.MessageDescriptor, path []protoreflect.FullName) error {
	if slices.Contains(path, m.FullName()) {
		return fmt.Errorf("%s contains itself, by way of %v: a schema has no recursive messages", m.FullName(), path)
	}
	if m.ParentFile().Syntax() != protoreflect.Proto3 {
		return fmt.Errorf("%s is of %v: only proto3 is understood", m.FullName(), m.ParentFile().Syntax())
	}
	switch other, known := n.names[m.Name()]; {
	case !known:
		n.names[m.Name()] = m.FullName()
		n.messages = append(n.messages, m)
	case other != m.FullName():
		return fmt.Errorf("%s and %s: a schema has room for one message %s", other, m.FullName(), m.Name())
	}
	path = append(slices.Clip(path), m.FullName())
	for field := range all(m.Fields()) {
		value := field
		if field.IsMap() {
			value = field.MapValue()
		}
		if enum := value.Enum(); enum != nil && enum.IsClosed() {
			return fmt.Errorf("%s: %s is of proto2: only proto3 is understood", field.FullName(), enum.FullName())
		}
		if value.Message() != nil {
			if err := n.add(value.Message(), path); err != nil {
				return err
			}
		}
	}
	return nil
}

type printer struct {
	w      io.Writer
	indent int
}

func (p printer) linef(format string, args ...any) {
	line := strings.Repeat("  ", p.indent) + fmt.Sprintf(format, args...)
	fmt.Fprintln(p.w, strings.TrimRight(line, " "))
}

// body prints the fields of m in the order of the source. It prints a oneof at the place of the
// oneof's first field.
func (p printer) body(m protoreflect.MessageDescriptor) {
	p.reserved(m)
	for field := range all(m.Fields()) {
		in := field.ContainingOneof()
		switch {
		case in == nil || in.IsSynthetic():
			p.field(field)
		case in.Fields().Get(0) == field:
			p.linef("oneof %s {", in.Name())
			p.indent++
			for member := range all(in.Fields()) {
				p.field(member)
			}
			p.indent--
			p.linef("}")
		}
	}
}

func (p printer) reserved(m protoreflect.MessageDescriptor) {
	for i := range m.ReservedRanges().Len() {
		first, last := m.ReservedRanges().Get(i)[0], m.ReservedRanges().Get(i)[1]-1
		if first == last {
			p.linef("reserved %d;", first)
		} else {
			p.linef("reserved %d to %d;", first, last)
		}
	}
	for i := range m.ReservedNames().Len() {
		p.linef("reserved %q;", m.ReservedNames().Get(i))
	}
}

func (p printer) field(f protoreflect.FieldDescriptor) {
	var label string
	switch {
	case f.IsMap():
		p.linef("map<%s, %s> %s = %d;", typeName(f.MapKey()), typeName(f.MapValue()), f.Name(), f.Number())
		return
	case f.IsList():
		label = "repeated "
	case f.HasOptionalKeyword():
		label = "optional "
	}
	p.linef("%s%s %s = %d;", label, typeName(f), f.Name(), f.Number())
}

func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return string(f.Message().Name())
	case f.Enum() != nil:
		return protoreflect.Int32Kind.String()
	default:
		return f.Kind().String()
	}
}

// all iterates over a list of protoreflect.
func all[T any](list interface {
	Len() int
	Get(i int) T
}) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}

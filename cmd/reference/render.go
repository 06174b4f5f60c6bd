package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// page is the part of the reference that has been written so far.
type page struct {
	strings.Builder
	// known has the packages in the reference. A field links to its message or enum if the package
	// of that type is known.
	known map[protoreflect.FullName]bool
}

func newPage(packages []*pack) *page {
	p := &page{known: map[protoreflect.FullName]bool{}}
	for _, pack := range packages {
		p.known[pack.name] = true
	}
	return p
}

// render returns the reference of the packages in Markdown.
func render(packages []*pack) string {
	p := newPage(packages)
	for _, pack := range packages {
		for _, service := range pack.services {
			p.service(service)
		}
		p.shared(pack)
	}
	return p.String()
}

func (p *page) service(s protoreflect.ServiceDescriptor) {
	p.heading("##", string(s.FullName()), s)
	fmt.Fprint(p, "\n| method | what |\n| --- | --- |\n")
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		first, _, _ := strings.Cut(cell(m), ". ")
		fmt.Fprintf(p, "| [%s](#%s) | %s |\n", m.Name(), title(m), strings.TrimSuffix(first, "."))
	}
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		p.heading("###", title(m), m)
		p.part("Request", m.Input(), m.IsStreamingClient())
		p.part("Answer", m.Output(), m.IsStreamingServer())
	}
}

// heading writes the heading and the comment of definition d. It adds an anchor that is the same as
// title. GitHub's own anchor has no capitals and no dots, so a search for the name would not find
// it.
func (p *page) heading(level, title string, d protoreflect.Descriptor) {
	fmt.Fprintf(p, "\n<a id=%q></a>\n\n%s %s\n", title, level, title)
	if text := comment(d); text != "" {
		fmt.Fprintf(p, "\n%s\n", text)
	}
}

// title returns the heading of a method. The service's name makes the heading unique.
func title(m protoreflect.MethodDescriptor) string {
	return string(m.Parent().Name()) + "." + string(m.Name())
}

// part writes the request or the answer of a method.
func (p *page) part(what string, m protoreflect.MessageDescriptor, stream bool) {
	kind := quoted(m.Name())
	if stream {
		kind = "a stream of " + kind
	}
	fmt.Fprintf(p, "\n%s: %s%s\n", what, kind, after(m))
	p.fields(m)
}

// after returns the comment of a message, in the form that follows the name of the message.
func after(m protoreflect.MessageDescriptor) string {
	if text := cell(m); text != "" {
		return ". " + text
	}
	return ""
}

func (p *page) shared(pack *pack) {
	if len(pack.shared)+len(pack.enums) == 0 {
		return
	}
	fmt.Fprintf(p, "\n## Messages of %s\n", pack.name)
	for _, m := range pack.shared {
		p.heading("###", string(m.FullName()), m)
		p.fields(m)
	}
	for _, e := range pack.enums {
		p.heading("###", string(e.FullName()), e)
		fmt.Fprint(p, "\n| value | number | |\n| --- | --- | --- |\n")
		for i := range e.Values().Len() {
			v := e.Values().Get(i)
			fmt.Fprintf(p, "| `%s` | %d | %s |\n", v.Name(), v.Number(), cell(v))
		}
	}
}

func (p *page) fields(m protoreflect.MessageDescriptor) {
	if m.Fields().Len() == 0 {
		fmt.Fprint(p, "\nNo fields.\n")
		return
	}
	fmt.Fprint(p, "\n| field | number | type | |\n| --- | --- | --- | --- |\n")
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		text := cell(f)
		if f.Options().(*descriptorpb.FieldOptions).GetDeprecated() {
			text = strings.TrimSuffix("Deprecated. "+text, " ")
		}
		fmt.Fprintf(p, "| `%s` | %d | %s | %s |\n", f.Name(), f.Number(), p.kind(f), text)
	}
}

// quoted returns a name in the Markdown form of code.
func quoted[T any](name T) string { return fmt.Sprint("`", name, "`") }

// kind returns the type of a field.
func (p *page) kind(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return "map of " + quoted(f.MapKey().Kind()) + " to " + p.kind(f.MapValue())
	case f.IsList():
		return "repeated " + p.element(f)
	case f.HasOptionalKeyword():
		return "optional " + p.element(f)
	case f.ContainingOneof() != nil:
		return p.element(f) + ", one of " + quoted(f.ContainingOneof().Name())
	}
	return p.element(f)
}

func (p *page) element(f protoreflect.FieldDescriptor) string {
	var named protoreflect.Descriptor
	switch f.Kind() {
	case protoreflect.MessageKind:
		named = f.Message()
	case protoreflect.EnumKind:
		named = f.Enum()
	default:
		return quoted(f.Kind())
	}
	if !p.known[named.ParentFile().Package()] {
		return quoted(named.FullName())
	}
	return "[" + quoted(named.Name()) + "](#" + string(named.FullName()) + ")"
}

// cell returns the comment of d on one line, for a cell of a table.
func cell(d protoreflect.Descriptor) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(comment(d)), " "), "|", `\|`)
}

func comment(d protoreflect.Descriptor) string {
	location := d.ParentFile().SourceLocations().ByDescriptor(d)
	lines := strings.Split(strings.TrimSpace(location.LeadingComments+"\n"+location.TrailingComments), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.NewReplacer("<", `\<`, "*", `\*`).Replace(strings.Join(lines, "\n"))
}

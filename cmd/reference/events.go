package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"example.com/lockstep/internal/topics"
)

// renderEvents returns the topics, and the messages of the packages, in Markdown.
func renderEvents(packages []*pack) string {
	p := newPage(packages)
	fmt.Fprint(p, "\n## Topics\n\n| topic | `aggregate_type` | data | `event_type` |\n| --- | --- | --- | --- |\n")
	for _, topic := range topics.All {
		for _, pack := range packages {
			if string(pack.name) == topic.Aggregate+".events.v1" {
				fmt.Fprintf(p, "| `%s` | `%s` | %s | %s |\n", topic.Name, topic.Aggregate, pack.envelope(), strings.Join(pack.types(), ", "))
			}
		}
	}
	for _, pack := range packages {
		p.shared(pack)
	}
	return p.String()
}

// envelope returns a link to the message that is the data of p's events.
func (p *pack) envelope() string {
	return "[`" + string(p.name) + ".Event`](#" + string(p.name) + ".Event)"
}

// types returns the types of p's events, which have the names of the messages in the envelope's oneof.
func (p *pack) types() (names []string) {
	for _, m := range p.shared {
		for i := range m.Fields().Len() {
			if f := m.Fields().Get(i); f.ContainingOneof() != nil && !f.HasOptionalKeyword() && f.Kind() == protoreflect.MessageKind {
				names = append(names, "`"+string(f.Message().Name())+"`")
			}
		}
	}
	return names
}

package main

import (
	"path"
	"slices"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// This file has the forms of the names of an aggregate and its fields. The templates use these
// forms.

// IsVideo reports whether the name is that of the sample aggregate of this repository.
func (n noun) IsVideo() bool { return n.Name == "video" }

// Type returns the name in Go and protobuf, such as Comment.
func (n noun) Type() string { return repo.Title(n.Name) }

// Upper returns the name in enums and in reasons of errors, such as COMMENT.
func (n noun) Upper() string { return strings.ToUpper(n.Name) }

// Plural is the name of the table, the path and the list.
func (n noun) Plural() string {
	if n.IsVideo() {
		return "videos"
	}
	return repo.Plural(n.Name)
}

// Article returns the indefinite article of the name: a or an.
func (n noun) Article() string { return repo.Article(n.Name) }

// Types returns the plural in Go, such as Comments.
func (a Aggregate) Types() string { return repo.Title(a.Plural()) }

// Owner is the name of the service that owns the aggregate, and of its schema.
func (a Aggregate) Owner() string { return path.Base("services/video") }

// Reader is the name of the service with the read model, and of its schema.
func (a Aggregate) Reader() string { return path.Base("services/catalog") }

// Topic is the topic of the events.
func (a Aggregate) Topic() string { return a.Name + ".events" }

// CollectionPath is the path at which instances are created and listed.
func (a Aggregate) CollectionPath() string {
	if a.Parent != nil {
		return "/v1/" + a.Parent.Plural() + "/{" + a.Parent.Name + "_id}/" + a.Plural()
	}
	return "/v1/" + a.Plural()
}

// Number returns the number of field i of a message. If the aggregate has a parent, field 0 has the
// number from. If not, field 0 has the number from - 1.
func (a Aggregate) Number(from, i int) int {
	if a.Parent == nil {
		from--
	}
	return from + i
}

// OneField reports whether there is only one field. A switch over one name would not pass the linter.
func (a Aggregate) OneField() bool { return len(a.Fields) == 1 }

// HasTime reports whether a field is a time.
func (a Aggregate) HasTime() bool { return slices.ContainsFunc(a.Fields, Field.IsTime) }

// HasText reports whether a field is a text.
func (a Aggregate) HasText() bool { return slices.ContainsFunc(a.Fields, Field.IsText) }

// Texts returns the fields that are texts.
func (a Aggregate) Texts() []Field {
	return slices.DeleteFunc(slices.Clone(a.Fields), func(f Field) bool { return !f.IsText() })
}

// Go returns the name of the struct field in Go that has the parent's id.
func (p Parent) Go() string { return p.Type() + "ID" }

// Proto returns the name of the field of a generated message that has the parent's id.
func (p Parent) Proto() string { return p.Type() + "Id" }

// Var returns the name of the local variable that has the parent.
func (p Parent) Var() string { return "parent" }

// Go returns the name of the struct field in Go, such as LinkURL for link_url.
func (f Field) Go() string {
	var name strings.Builder
	for word := range strings.SplitSeq(f.Name, "_") {
		if slices.Contains(initialisms, word) {
			word = strings.ToUpper(word)
		}
		name.WriteString(repo.Title(word))
	}
	return name.String()
}

// Proto returns the name of the field in the generated message, such as LinkUrl for link_url.
func (f Field) Proto() string {
	var name strings.Builder
	for word := range strings.SplitSeq(f.Name, "_") {
		name.WriteString(repo.Title(word))
	}
	return name.String()
}

// JSON returns the name in a field mask in the JSON of protobuf, such as linkUrl for link_url.
func (f Field) JSON() string {
	name := f.Proto()
	return strings.ToLower(name[:1]) + name[1:]
}

// IsTime reports whether the field is a time. A time may be absent.
func (f Field) IsTime() bool { return f.Kind == "timestamp" }

// IsText reports whether the field is a text.
func (f Field) IsText() bool { return f.Kind == "string" }

// Schema returns the JSON schema of the field. If owner is true, it has the layout of the owner's
// OpenAPI document. If not, it has the layout of the reader's document.
func (f Field) Schema(owner bool) string {
	if owner {
		return "{" + f.schema + "}"
	}
	return "{ " + f.schema + " }"
}

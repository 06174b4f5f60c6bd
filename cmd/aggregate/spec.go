package main

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Aggregate is the aggregate to add, in the forms in which templates name it.
type Aggregate struct {
	Name   string  // comment
	Parent *Parent // nil: none
	Fields []Field
}

// Parent is the aggregate that owns others.
type Parent struct{ Name string }

// Field is one field that callers write.
type Field struct{ Name, Kind string }

// kind is one type of fields.
type kind struct{ goType, proto, sql, schema string }

// kinds are all types.
var kinds = map[string]kind{
	"string":    {"string", "string", "text", `"type": "string", "maxLength": 4000`},
	"int32":     {"int32", "int32", "integer", `"type": "integer", "format": "int32", "minimum": -2147483648, "maximum": 2147483647`},
	"int64":     {"int64", "int64", "bigint", `"type": "integer", "format": "int64"`},
	"bool":      {"bool", "bool", "boolean", `"type": "boolean"`},
	"timestamp": {"*time.Time", "google.protobuf.Timestamp", "timestamptz", `"type": ["string", "null"], "format": "date-time"`},
}

// kindNames is the list of kinds for messages.
const kindNames = "string, int32, int64, bool, timestamp"

// maxFields keeps the functions over all fields short. A person adds more by docs/adapt.md.
const maxFields = 8

// maxTexts keeps a message below the 64 KiB of a gRPC request, and a body below the 256 KiB of
// REST: a text has 4,000 characters of four bytes, or of twelve if each is escaped.
const maxTexts = 4

// maxName keeps names of indexes within the 63 bytes that Postgres has for them.
const maxName = 20

var (
	namePattern  = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	fieldPattern = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
)

// parse reads the words of the command line. The error names the flag.
func parse(name, fields, parent string) (a Aggregate, err error) {
	if err := checkName("NAME", name); err != nil {
		return a, err
	}
	a.Name = name
	if parent != "" {
		if !namePattern.MatchString(parent) || parent == name {
			return a, fmt.Errorf("PARENT: %q is not the name of another aggregate", parent)
		}
		a.Parent = &Parent{parent}
	}
	if a.Fields, err = parseFields(fields); err != nil {
		return a, err
	}
	return a, a.checkFields()
}

func checkName(flag, name string) error {
	switch {
	case !namePattern.MatchString(name) || len(name) > maxName:
		return fmt.Errorf("%s: %q is not a word of 1 to %d lower-case letters and digits that begins with a letter", flag, name, maxName)
	case reserved(name), slices.Contains(takenNames, name):
		return fmt.Errorf("%s: %q is a reserved word of Go, SQL or protobuf, or of the generated code; take another one", flag, name)
	}
	return nil
}

func parseFields(text string) (fields []Field, err error) {
	for part := range strings.SplitSeq(text, ",") {
		name, kind, given := strings.Cut(strings.TrimSpace(part), ":")
		switch _, known := kinds[kind]; {
		case !given:
			return nil, fmt.Errorf(`FIELDS: %q is not NAME:TYPE, as in "text:string,stars:int32"`, part)
		case !fieldPattern.MatchString(name) || len(name) > 2*maxName:
			return nil, fmt.Errorf("FIELDS: %q is not a name of lower-case words with underscores between, at most %d characters", name, 2*maxName)
		case !known:
			return nil, fmt.Errorf("FIELDS: %s has the unknown type %q; the types are %s", name, kind, kindNames)
		}
		fields = append(fields, Field{name, kind})
	}
	if len(fields) > maxFields {
		return nil, fmt.Errorf("FIELDS: %d fields, at most %d; docs/adapt.md adds more", len(fields), maxFields)
	}
	return fields, nil
}

// checkFields refuses names that mean something already, and two that pgx or Go takes for one:
// pgx finds a member by its column without underscores.
func (a Aggregate) checkFields() error {
	own := []string{a.Name, a.Name + "_id", a.Plural()}
	if a.Parent != nil {
		own = append(own, a.Parent.Name+"_id")
	}
	taken := map[string]bool{}
	for _, name := range slices.Concat(takenFields, own) {
		taken[joined(name)] = true
	}
	seen := map[string]string{}
	for _, f := range a.Fields {
		if reserved(f.Name) || taken[joined(f.Name)] {
			return fmt.Errorf("FIELDS: %q is a reserved word of Go, SQL or protobuf, or a field that every %s has; take another one", f.Name, a.Name)
		}
		if other, twice := seen[joined(f.Name)]; twice {
			return fmt.Errorf("FIELDS: %q is there twice, as %q", f.Name, other)
		}
		seen[joined(f.Name)] = f.Name
	}
	if n := len(a.Texts()); n > maxTexts {
		return fmt.Errorf("FIELDS: %d strings, at most %d: more of 4,000 characters do not fit a gRPC message of 64 KiB", n, maxTexts)
	}
	return nil
}

func joined(name string) string { return strings.ReplaceAll(name, "_", "") }

// Type is the name as Go and protobuf have it: Comment.
func (a Aggregate) Type() string { return camel(a.Name) }

// Upper is the name in enums and reasons: COMMENT.
func (a Aggregate) Upper() string { return strings.ToUpper(a.Name) }

// Plural is the name of the table, the path and the list.
func (a Aggregate) Plural() string { return plural(a.Name) }

// Types is Plural as Go has it.
func (a Aggregate) Types() string { return camel(a.Plural()) }

// Article is a or an.
func (a Aggregate) Article() string { return article(a.Name) }

// Owner is the name of the service that owns the aggregate, and of its schema; Reader is that of
// the other one.
func (a Aggregate) Owner() string { return path.Base("services/video") }

// Reader is explained at Owner.
func (a Aggregate) Reader() string { return path.Base("services/catalog") }

// Topic is the topic of the events.
func (a Aggregate) Topic() string { return a.Name + ".events" }

// CollectionPath is the path at which one is created, and where they are listed.
func (a Aggregate) CollectionPath() string {
	if a.Parent != nil {
		return "/v1/" + a.Parent.Plural() + "/{" + a.Parent.Name + "_id}/" + a.Plural()
	}
	return "/v1/" + a.Plural()
}

// Number is the number of the i-th field of a message. Those of an aggregate without a
// parent begin one lower than from.
func (a Aggregate) Number(from, i int) int {
	if a.Parent == nil {
		from--
	}
	return from + i
}

// HasTime and HasText say whether there is a field of that kind; Texts are the latter.
func (a Aggregate) HasTime() bool { return slices.ContainsFunc(a.Fields, Field.IsTime) }

// HasText is explained at HasTime.
func (a Aggregate) HasText() bool { return slices.ContainsFunc(a.Fields, Field.IsText) }

// Texts is explained at HasTime.
func (a Aggregate) Texts() []Field {
	return slices.DeleteFunc(slices.Clone(a.Fields), func(f Field) bool { return !f.IsText() })
}

// Type is that of the parent, as Aggregate.Type.
func (p Parent) Type() string { return camel(p.Name) }

// Upper is as Aggregate.Upper.
func (p Parent) Upper() string { return strings.ToUpper(p.Name) }

// Plural is as Aggregate.Plural.
func (p Parent) Plural() string {
	if p.IsVideo() {
		return "videos"
	}
	return plural(p.Name)
}

// Article is a or an.
func (p Parent) Article() string { return article(p.Name) }

// Go is the member with the parent's id, and Proto that of messages.
func (p Parent) Go() string { return p.Type() + "ID" }

// Proto is explained at Go.
func (p Parent) Proto() string { return p.Type() + "Id" }

// Var is a local variable for the parent.
func (p Parent) Var() string { return "parent" }

// Go is the member of the field: LinkURL for link_url.
func (f Field) Go() string {
	var name strings.Builder
	for word := range strings.SplitSeq(f.Name, "_") {
		if slices.Contains(initialisms, word) {
			word = strings.ToUpper(word)
		}
		name.WriteString(camel(word))
	}
	return name.String()
}

// Proto is the member of the generated message: LinkUrl for link_url.
func (f Field) Proto() string {
	var name strings.Builder
	for word := range strings.SplitSeq(f.Name, "_") {
		name.WriteString(camel(word))
	}
	return name.String()
}

// IsTime says that the field is a time, which may be absent.
func (f Field) IsTime() bool { return f.Kind == "timestamp" }

// IsText says that the field is a text.
func (f Field) IsText() bool { return f.Kind == "string" }

// GoType is the type in Go.
func (f Field) GoType() string { return kinds[f.Kind].goType }

// ProtoType is the type in protobuf.
func (f Field) ProtoType() string { return kinds[f.Kind].proto }

// SQL is the type of the column.
func (f Field) SQL() string { return kinds[f.Kind].sql }

// Schema is the schema in the owner's OpenAPI document, or in the reader's.
func (f Field) Schema(owner bool) string {
	if owner {
		return "{" + kinds[f.Kind].schema + "}"
	}
	return "{ " + kinds[f.Kind].schema + " }"
}

func camel(word string) string {
	if word == "" {
		return ""
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

func plural(word string) string {
	last := word[len(word)-1]
	switch {
	case last == 'y' && len(word) > 1 && !strings.ContainsRune("aeiou", rune(word[len(word)-2])):
		return word[:len(word)-1] + "ies"
	case strings.ContainsRune("sxz", rune(last)), strings.HasSuffix(word, "ch"), strings.HasSuffix(word, "sh"):
		return word + "es"
	}
	return word + "s"
}

func article(word string) string {
	if strings.ContainsRune("aeio", rune(word[0])) {
		return "an"
	}
	return "a"
}

// IsVideo says that the parent is the aggregate that the repository comes with.
func (p Parent) IsVideo() bool { return p.Name == "video" }

// Sample is a value of the field in JSON, another one for each n.
func (f Field) Sample(n int) string {
	switch f.Kind {
	case "string":
		return fmt.Sprintf(`"%s %d"`, f.Name, n)
	case "bool":
		return fmt.Sprint(n%2 == 1)
	case "timestamp":
		return fmt.Sprintf(`"2026-03-04T05:06:0%dZ"`, n)
	}
	return fmt.Sprint(n)
}

// ProtoSample is Sample as the value of a message.
func (f Field) ProtoSample(n int) string {
	if f.IsTime() {
		return fmt.Sprintf("timestamppb.New(time.Date(2026, 3, 4, 5, 6, %d, 0, time.UTC))", n)
	}
	return f.Sample(n)
}

// OfVersion is a value of the field that tells versions apart; ofTime makes a time of one.
func (f Field) OfVersion(ofTime string) string {
	switch f.Kind {
	case "string":
		return `fmt.Sprint("version ", version)`
	case "bool":
		return "version%2 == 1"
	case "timestamp":
		return ofTime + "(version)"
	case "int32":
		return "int32(version)"
	}
	return "version"
}

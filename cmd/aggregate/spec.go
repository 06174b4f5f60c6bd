package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// noun is the name of an aggregate, such as comment. The templates use its methods, which return the
// forms of the name.
type noun struct{ Name string }

// Aggregate is the aggregate to add.
type Aggregate struct {
	noun

	Parent *Parent // nil: none
	Fields []Field
}

// Parent is the aggregate to which the new aggregates belong.
type Parent struct{ noun }

// Field is one field that callers write.
type Field struct {
	Name, Kind string
	types
}

// types are the types of a kind of fields in Go, in protobuf and of its column, and its JSON schema.
type types struct{ GoType, ProtoType, SQL, schema string }

// kinds are all kinds of fields.
var kinds = map[string]types{
	"string":    {"string", "string", "text", `"type": "string", "maxLength": 4000`},
	"int32":     {"int32", "int32", "integer", `"type": "integer", "format": "int32", "minimum": -2147483648, "maximum": 2147483647`},
	"int64":     {"int64", "int64", "bigint", `"type": "integer", "format": "int64"`},
	"bool":      {"bool", "bool", "boolean", `"type": "boolean"`},
	"timestamp": {"*time.Time", "google.protobuf.Timestamp", "timestamptz", `"type": ["string", "null"], "format": "date-time"`},
}

// kindNames is the list of kinds for messages.
const kindNames = "string, int32, int64, bool, timestamp"

// maxFields is the maximum number of fields. It keeps the generated functions that handle all
// fields short. docs/adapt.md describes how a person adds more fields.
const maxFields = 8

// maxTexts is the maximum number of texts. It keeps a message below the 64 KiB of a gRPC request,
// and a body below the 256 KiB of a REST request. A text has up to 4,000 characters. A character
// has up to four bytes, or twelve if JSON escapes it.
const maxTexts = 4

// maxName is the maximum length of a name. It keeps the names of indexes within the 63 bytes that
// Postgres allows.
const maxName = 20

// These patterns match the names that protoc-gen-go spells as the templates do. It writes a letter
// behind a digit in upper case, and keeps an underscore before a digit. The plural has a letter
// behind the name, so the name has no digit.
var (
	namePattern   = regexp.MustCompile(`^[a-z]+$`)
	parentPattern = regexp.MustCompile(`^[a-z]+\d*$`) // a fork has such a word with a plural of its own
	fieldPattern  = regexp.MustCompile(`^[a-z]+\d*(_[a-z]+\d*)*$`)
)

// parse reads the values of the flags. An error names the flag.
func parse(name, fields, parent string) (a Aggregate, err error) {
	if err := checkName("NAME", name); err != nil {
		return a, err
	}
	a.Name = name
	if parent != "" {
		if !parentPattern.MatchString(parent) || parent == name {
			return a, fmt.Errorf("PARENT: %q is not the name of another aggregate", parent)
		}
		a.Parent = &Parent{noun{parent}}
	}
	if a.Fields, err = parseFields(fields); err != nil {
		return a, err
	}
	return a, a.checkFields()
}

func checkName(flag, name string) error {
	switch {
	case !namePattern.MatchString(name) || len(name) > maxName:
		return fmt.Errorf("%s: %q is not a word of 1 to %d lower-case letters", flag, name, maxName)
	case repo.Reserved(name) != "", slices.Contains(takenNames, name):
		return fmt.Errorf("%s: %q is a reserved word of Go, SQL or protobuf, or of the generated code; take another one", flag, name)
	case strings.HasPrefix(name, "goog"):
		return fmt.Errorf("%s: %q cannot name a topic: Pub/Sub takes no name that begins with goog; take another one", flag, name)
	}
	return nil
}

func parseFields(text string) (fields []Field, err error) {
	for part := range strings.SplitSeq(text, ",") {
		name, kind, given := strings.Cut(strings.TrimSpace(part), ":")
		switch types, known := kinds[kind]; {
		case !given:
			return nil, fmt.Errorf(`FIELDS: %q is not NAME:TYPE, as in "text:string,stars:int32"`, part)
		case !fieldPattern.MatchString(name) || len(name) > 2*maxName:
			return nil, fmt.Errorf("FIELDS: %q is not a name of lower-case words with underscores between, at most %d characters; "+
				"a digit stands at the end of a word", name, 2*maxName)
		case !known:
			return nil, fmt.Errorf("FIELDS: %s has the unknown type %q; the types are %s", name, kind, kindNames)
		default:
			fields = append(fields, Field{name, kind, types})
		}
	}
	if len(fields) > maxFields {
		return nil, fmt.Errorf("FIELDS: %d fields, at most %d; docs/adapt.md adds more", len(fields), maxFields)
	}
	return fields, nil
}

// checkFields refuses names that have another meaning already. It also refuses two names that
// differ only in underscores, because pgx ignores the underscores of a column when it looks for the
// struct field. Two such names could also be the same name in Go.
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
		if repo.Reserved(f.Name) != "" || taken[joined(f.Name)] {
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

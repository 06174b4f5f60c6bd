package main

import (
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// words are the names of the sample domain. All are lower-case words of one part.
type words struct {
	// aggregate is the name for one row of the owner. plural is the name for several rows.
	aggregate, plural string
	// owner is the service that writes the aggregates, and the name of its binary, schema and
	// role.
	owner string
	// reader is the service with the read model, and the name of its binary, schema and role.
	reader string
	// name is the name of the repository.
	name string
}

// current are the words of this repository. In a fork, this variable has the words of the fork, so
// that the fork can be forked, too.
var current = words{
	aggregate: "video",
	plural:    "videos",
	owner:     "video",
	reader:    "catalog",
	name:      "lockstep",
}

// ambiguous reports whether the aggregate and its owner have the same name. If they do, the rules
// in contexts tell which of the two an occurrence means.
func (w words) ambiguous() bool { return w.aggregate == w.owner }

// all returns each word with the name of the flag that sets the word.
func (w words) all() []flagged {
	return []flagged{
		{"--aggregate", w.aggregate}, {"--plural", w.plural}, {"--owner", w.owner}, {"--reader", w.reader}, {"--name", w.name},
	}
}

type flagged struct{ flag, word string }

// spelled returns the word to in the case that occurrence has: lower, Title or UPPER.
func spelled(to, occurrence string) string {
	switch occurrence {
	case strings.ToLower(occurrence):
		return to
	case strings.ToUpper(occurrence):
		return strings.ToUpper(to)
	}
	return repo.Title(to)
}

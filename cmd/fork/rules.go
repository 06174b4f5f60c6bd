package main

import "regexp"

// A meaning of a word that names both the aggregate and its owner.
type meaning string

const (
	aggregate meaning = "aggregate"
	owner     meaning = "owner"
)

// A rule tells the aggregate from its owner, if one word names both. A rule matches if all
// patterns that it has match. The first rule of the list that matches decides.
type rule struct {
	means meaning
	Why   string
	// in matches the path, and kind is the kind of text. ident matches the identifier around the
	// word. before and after match the line around the word, and previous matches the word
	// before it.
	in                             *regexp.Regexp
	kind                           kind
	ident, before, after, previous *regexp.Regexp
}

func (c rule) matches(o occurrence) bool {
	return (c.kind == "" || c.kind == o.kind) &&
		matches(c.in, o.file) && matches(c.ident, o.ident) && matches(c.before, o.before) &&
		matches(c.after, o.after) && matches(c.previous, o.previous)
}

func matches(pattern *regexp.Regexp, text string) bool {
	return pattern == nil || pattern.MatchString(text)
}

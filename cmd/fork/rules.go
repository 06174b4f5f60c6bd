package main

import "regexp"

// A meaning of a word that names the aggregate and its owner.
type meaning string

const (
	aggregate meaning = "aggregate"
	owner     meaning = "owner"
)

// A rule tells the aggregate from its owner, where one word names
// both. All patterns that it has match; the first rule of the list decides.
type rule struct {
	means meaning
	Why   string
	// in is a pattern of paths; kind of text; ident of the identifier around the word;
	// before and after of the line around it; previous of the word before.
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

package main

import "regexp"

// A meaning of a word that names both the aggregate and its owner.
type meaning string

const (
	aggregate meaning = "aggregate"
	owner     meaning = "owner"
)

// A rule gives the meaning of an occurrence of a word that names both the aggregate and its owner.
// A rule matches an occurrence if all patterns of the rule match. The first rule in the list that
// matches decides.
type rule struct {
	means meaning
	Why   string
	// in matches the path of the file. kind is the kind of text around the word. ident matches the
	// identifier that contains the word. before and after match the parts of the line before and
	// after the word. previous matches the previous word.
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

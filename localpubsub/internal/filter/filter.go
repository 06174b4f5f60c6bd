// Package filter parses and applies the filters of subscriptions. A filter
// selects messages by their attributes, in the language of
// https://cloud.google.com/pubsub/docs/subscription-message-filter:
//
//	expression = all | any | unary
//	all        = unary { "AND" unary }
//	any        = unary { "OR" unary }
//	unary      = ( "NOT" | "-" ) unary | "(" expression ")" | test
//	test       = "attributes" ":" key
//	           | "attributes" "." key ( "=" | "!=" ) string
//	           | "hasPrefix" "(" "attributes" "." key "," string ")"
//	key        = letters, digits, "-" and "_" of ASCII | string
//	string     = text in double quotes, with escapes
//
// An expression that has both AND and OR needs parentheses. Keywords are case-sensitive, as written
// here.
package filter

import (
	"fmt"
	"strings"
)

// maxSize is the maximum length of a filter in bytes
// (https://cloud.google.com/pubsub/docs/subscription-message-filter).
const maxSize = 256

// A Filter selects the messages of a subscription. A nil filter matches every
// message. A filter never changes, so it is safe for concurrent use.
type Filter struct {
	condition condition
}

// A condition reports whether a message with these attributes meets it.
type condition func(attributes map[string]string) bool

// Matches reports whether the subscription gets the message.
func (f *Filter) Matches(attributes map[string]string) bool {
	return f == nil || f.condition(attributes)
}

// Parse parses a filter. It returns nil if text is empty. An error names the position in bytes,
// beginning with 1.
func Parse(text string) (*Filter, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxSize {
		return nil, fmt.Errorf("%d bytes, a filter has at most %d", len(text), maxSize)
	}
	p := &parser{text: text}
	if err := p.next(); err != nil {
		return nil, err
	}
	parsed, err := p.expression()
	if err != nil {
		return nil, err
	}
	if p.token.kind != tokenEnd {
		return nil, p.unexpected("AND, OR or the end")
	}
	return &Filter{condition: parsed}, nil
}

func hasAttribute(key string) condition {
	return func(attributes map[string]string) bool {
		_, ok := attributes[key]
		return ok
	}
}

func attributeIs(key, value string) condition {
	return func(attributes map[string]string) bool {
		got, ok := attributes[key]
		return ok && got == value
	}
}

func attributeBegins(key, prefix string) condition {
	return func(attributes map[string]string) bool {
		got, ok := attributes[key]
		return ok && strings.HasPrefix(got, prefix)
	}
}

func (c condition) not() condition {
	return func(attributes map[string]string) bool { return !c(attributes) }
}

func (c condition) and(other condition) condition {
	return func(attributes map[string]string) bool { return c(attributes) && other(attributes) }
}

func (c condition) or(other condition) condition {
	return func(attributes map[string]string) bool { return c(attributes) || other(attributes) }
}

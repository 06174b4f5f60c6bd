package localpubsub

import (
	"fmt"
	"strings"
)

// maxFilter is in bytes
// (https://cloud.google.com/pubsub/docs/subscription-message-filter).
const maxFilter = 256

// A filter selects the messages of a subscription by their attributes, in the
// language of https://cloud.google.com/pubsub/docs/subscription-message-filter:
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
// AND and OR in one expression need parentheses between them. Keywords are
// case-sensitive, as written here. A nil filter matches every message. A filter
// never changes, so it is safe for concurrent use.
type filter struct {
	holds condition
}

// A condition reports whether it is true of a message's attributes.
type condition func(attributes map[string]string) bool

// matches reports whether the subscription gets the message.
func (f *filter) matches(attributes map[string]string) bool {
	return f == nil || f.holds(attributes)
}

// parseFilter parses a filter; for an empty text it returns nil. An error names
// the position, which counts bytes from 1.
func parseFilter(text string) (*filter, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxFilter {
		return nil, fmt.Errorf("%d bytes, a filter has at most %d", len(text), maxFilter)
	}
	p := &filterParser{text: text}
	if err := p.next(); err != nil {
		return nil, err
	}
	holds, err := p.expression()
	if err != nil {
		return nil, err
	}
	if p.token.kind != filterEnd {
		return nil, p.unexpected("AND, OR or the end")
	}
	return &filter{holds: holds}, nil
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

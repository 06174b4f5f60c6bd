package filter

import "fmt"

// A parser parses a filter by recursive descent with one token of lookahead. The maximum length of
// a filter bounds the depth of the recursion.
type parser struct {
	text  string
	rest  int // offset after the current token
	token token
}

func (p *parser) expression() (condition, error) {
	parsed, err := p.unary()
	if err != nil {
		return nil, err
	}
	operator := p.token.kind
	if operator != tokenAnd && operator != tokenOr {
		return parsed, nil
	}
	for p.token.kind == tokenAnd || p.token.kind == tokenOr {
		if p.token.kind != operator {
			return nil, p.wrong("AND and OR need parentheses between them")
		}
		if err := p.next(); err != nil {
			return nil, err
		}
		other, err := p.unary()
		if err != nil {
			return nil, err
		}
		if operator == tokenAnd {
			parsed = parsed.and(other)
		} else {
			parsed = parsed.or(other)
		}
	}
	return parsed, nil
}

func (p *parser) unary() (condition, error) {
	switch {
	case p.token.kind == tokenNot || p.token.is("-"):
		if err := p.next(); err != nil {
			return nil, err
		}
		parsed, err := p.unary()
		if err != nil {
			return nil, err
		}
		return parsed.not(), nil
	case p.token.is("("):
		if err := p.next(); err != nil {
			return nil, err
		}
		parsed, err := p.expression()
		if err != nil {
			return nil, err
		}
		return parsed, p.skip(")")
	default:
		return p.test()
	}
}

func (p *parser) test() (condition, error) {
	switch {
	case p.token.isWord("attributes"):
		return p.comparison()
	case p.token.isWord("hasPrefix"):
		return p.prefix()
	default:
		return nil, p.unexpected("attributes, hasPrefix, NOT or a parenthesis")
	}
}

func (p *parser) comparison() (condition, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	if p.token.is(":") {
		key, err := p.key()
		return hasAttribute(key), err
	}
	if !p.token.is(".") {
		return nil, p.unexpected(`":" or "."`)
	}
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	operator := p.token
	if !operator.is("=") && !operator.is("!=") {
		return nil, p.unexpected(`"=" or "!="`)
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	value, err := p.literal()
	if operator.is("!=") {
		return attributeIs(key, value).not(), err
	}
	return attributeIs(key, value), err
}

// prefix reads hasPrefix(attributes.key, "prefix").
func (p *parser) prefix() (condition, error) {
	if err := p.next(); err != nil {
		return nil, err
	}
	if err := p.skip("("); err != nil {
		return nil, err
	}
	if !p.token.isWord("attributes") {
		return nil, p.unexpected("attributes")
	}
	if err := p.next(); err != nil {
		return nil, err
	}
	if !p.token.is(".") {
		return nil, p.unexpected(`"."`)
	}
	key, err := p.key()
	if err != nil {
		return nil, err
	}
	if err := p.skip(","); err != nil {
		return nil, err
	}
	value, err := p.literal()
	if err != nil {
		return nil, err
	}
	return attributeBegins(key, value), p.skip(")")
}

// key reads the key that follows the current token. A key is scanned by other rules than other
// tokens, because "-" in a key is no operator and AND in a key is no keyword.
func (p *parser) key() (string, error) {
	if err := p.nextKey(); err != nil {
		return "", err
	}
	if p.token.kind != tokenWord && p.token.kind != tokenString {
		return "", p.unexpected("a key")
	}
	key := p.token.text
	return key, p.next()
}

func (p *parser) literal() (string, error) {
	if p.token.kind != tokenString {
		return "", p.unexpected("a string in double quotes")
	}
	value := p.token.text
	return value, p.next()
}

func (p *parser) skip(symbol string) error {
	if !p.token.is(symbol) {
		return p.unexpected(fmt.Sprintf("%q", symbol))
	}
	return p.next()
}

func (p *parser) unexpected(wanted string) error {
	if p.token.kind == tokenEnd {
		return p.wrong("the filter ends where %s should be", wanted)
	}
	return p.wrong("%q where %s should be", p.token.text, wanted)
}

// wrong returns an error that names the position of the current token.
func (p *parser) wrong(format string, args ...any) error {
	return errorAt(p.token.at, format, args...)
}

func errorAt(at int, format string, args ...any) error {
	return fmt.Errorf("position %d: %s", at+1, fmt.Sprintf(format, args...))
}

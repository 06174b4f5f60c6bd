package filter

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

type tokenKind int

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenString
	tokenSymbol
	tokenAnd
	tokenOr
	tokenNot
)

// A token is one token of the filter, with its byte offset in the field at. If the token is a
// string, its text has the escapes resolved.
type token struct {
	kind tokenKind
	text string
	at   int
}

func (t token) is(symbol string) bool { return t.kind == tokenSymbol && t.text == symbol }

func (t token) isWord(word string) bool { return t.kind == tokenWord && t.text == word }

// next reads a token that is not a key.
func (p *parser) next() error {
	if err := p.scan(isWordByte); err != nil {
		return err
	}
	if p.token.kind != tokenWord {
		return nil
	}
	switch p.token.text {
	case "AND":
		p.token.kind = tokenAnd
	case "OR":
		p.token.kind = tokenOr
	case "NOT":
		p.token.kind = tokenNot
	case "and", "or", "not", "And", "Or", "Not":
		return p.wrong("%q: operators are in upper case", p.token.text)
	}
	return nil
}

// nextKey reads a token that is a key. A key may contain hyphens, and may be a keyword such as AND.
func (p *parser) nextKey() error {
	return p.scan(func(c byte) bool { return c == '-' || isWordByte(c) })
}

func isWordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

func (p *parser) scan(inWord func(byte) bool) error {
	for p.rest < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.rest]) >= 0 {
		p.rest++
	}
	rest := p.text[p.rest:]
	p.token = token{at: p.rest}
	switch {
	case rest == "":
		return nil
	case inWord(rest[0]):
		end := 1
		for end < len(rest) && inWord(rest[end]) {
			end++
		}
		p.take(tokenWord, rest[:end])
	case rest[0] == '"':
		return p.scanString()
	case strings.HasPrefix(rest, "!="):
		p.take(tokenSymbol, "!=")
	case strings.IndexByte("().,:=-", rest[0]) >= 0:
		p.take(tokenSymbol, rest[:1])
	default:
		r, _ := utf8.DecodeRuneInString(rest)
		return p.wrong("%q stands in strings only", r)
	}
	return nil
}

func (p *parser) take(kind tokenKind, text string) {
	p.token.kind, p.token.text = kind, text
	p.rest += len(text)
}

// scanString reads a string and resolves its escapes. Google's page names these escapes: backslash,
// quotation mark, non-printing characters, Unicode, hexadecimal and octal. The page does not say
// whether a hexadecimal or octal escape is a byte or a character. Here it is a byte. The resolved
// string must be valid UTF-8, because any other string could match nothing.
func (p *parser) scanString() error {
	var value []byte
	tail := p.text[p.rest+1:]
	for tail != "" && tail[0] != '"' {
		at := len(p.text) - len(tail)
		if tail[0] < ' ' || tail[0] == 0x7f {
			return errorAt(at, "%q is written with a backslash", tail[0])
		}
		r, wide, rest, err := strconv.UnquoteChar(tail, '"')
		if err != nil {
			return errorAt(at, "no such escape sequence")
		}
		if raw := tail[0] != '\\'; raw {
			value = append(value, tail[:len(tail)-len(rest)]...)
		} else if wide {
			value = utf8.AppendRune(value, r)
		} else {
			value = append(value, byte(r))
		}
		tail = rest
	}
	if tail == "" {
		return p.wrong("the string has no end")
	}
	if !utf8.Valid(value) {
		return p.wrong("the string is not UTF-8")
	}
	p.token.kind, p.token.text = tokenString, string(value)
	p.rest = len(p.text) - len(tail) + 1
	return nil
}

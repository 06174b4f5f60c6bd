package filter

import (
	"strings"
	"testing"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	attributes := map[string]string{
		"name": "com", "lang": "", "a-b_1": "x", "iana.org/language_tag": "en", "AND": "and",
		`q"\`: "line\nfeed", "みん": "な", "not": "y",
	}
	for text, want := range map[string]bool{
		"": true,
		// Every test.
		`attributes:name`:                         true,
		`attributes:nam`:                          false,
		`attributes:Name`:                         false,
		`attributes:lang`:                         true,
		`attributes.name = "com"`:                 true,
		`attributes.name="com"`:                   true,
		`attributes.name = "Com"`:                 false,
		`attributes.lang = ""`:                    true,
		`attributes.missing = ""`:                 false,
		`attributes.name != "com"`:                false,
		`attributes.name != "net"`:                true,
		`attributes.missing != "net"`:             true,
		`hasPrefix(attributes.name, "co")`:        true,
		`hasPrefix(attributes.name, "")`:          true,
		`hasPrefix(attributes.name, "om")`:        false,
		`hasPrefix(attributes.missing, "")`:       false,
		`hasPrefix ( attributes . name , "com" )`: true,
		// Keys.
		`attributes:a-b_1`:                                   true,
		`attributes."a-b_1" = "x"`:                           true,
		`attributes:"iana.org/language_tag"`:                 true,
		`hasPrefix(attributes."iana.org/language_tag", "e")`: true,
		`attributes:AND`:                                     true,
		`attributes.not = "y"`:                               true,
		`attributes . AND = "and" AND attributes:not`:        true,
		// Escapes.
		`attributes."q\"\\" = "line\nfeed"`:    true,
		`attributes:"\u307f\u3093"`:            true,
		`attributes:"\u307F\u3093\u306A"`:      false,
		`attributes."\u307F\u3093" = "\u306A"`: true,
		`attributes."みん" = "な"`:                true,
		`attributes."\U0000307F\u3093" = "な"`:  true,
		`attributes."みん" = "\xe3\x81\xaa"`:     true,
		`attributes."みん" = "\343\201\252"`:     true,
		`attributes."\x6eame" = "\143om"`:      true,
		// Operators.
		`NOT attributes:name`:                                             false,
		`NOT attributes:missing`:                                          true,
		`-attributes:missing`:                                             true,
		`- attributes:name`:                                               false,
		`NOT NOT attributes:name`:                                         true,
		`--attributes:name`:                                               true,
		`NOT(attributes:missing)`:                                         true,
		`NOT hasPrefix(attributes.name, "ne")`:                            true,
		`NOT attributes.name = "net" AND attributes:name`:                 true,
		`NOT attributes:missing OR attributes:name`:                       true,
		`NOT attributes:name OR attributes:name`:                          true,
		`attributes:name AND attributes:lang`:                             true,
		`attributes:name AND attributes:missing`:                          false,
		`attributes:missing OR attributes:name`:                           true,
		`attributes:missing OR attributes:gone`:                           false,
		`attributes:name AND attributes:lang AND attributes:missing`:      false,
		`attributes:missing OR attributes:gone OR attributes:name`:        true,
		`attributes:missing AND (attributes:gone OR attributes:name)`:     false,
		`(attributes:missing AND attributes:gone) OR attributes:name`:     true,
		`attributes:name AND NOT (attributes:gone OR attributes:name)`:    false,
		`((attributes:name))`:                                             true,
		"\t(attributes:name)\r\n":                                         true,
		`attributes.name = "com" AND -attributes:"iana.org/language_tag"`: false,
	} {
		f, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := f.Matches(attributes); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}

func TestFilterOfNoAttributes(t *testing.T) {
	t.Parallel()
	f, err := Parse(`attributes.a != "b" AND NOT attributes:a`)
	if err != nil || !f.Matches(nil) {
		t.Errorf("a message without attributes is refused, %v", err)
	}
}

func TestFilterRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		` `:                                             "position 2: the filter ends where attributes",
		`name = "com"`:                                  `position 1: "name" where attributes`,
		`"com" = attributes.name`:                       `position 1: "com" where attributes`,
		`attributes`:                                    `position 11: the filter ends where ":" or "." should be`,
		`attributes name`:                               `position 12: "name" where ":" or "."`,
		`attributes:`:                                   "position 12: the filter ends where a key",
		`attributes:=`:                                  `position 12: "=" where a key`,
		`attributes.name`:                               `position 16: the filter ends where "=" or "!="`,
		`attributes.name : "x"`:                         `position 17: ":" where "="`,
		"attributes.n = \"\x7f\"":                       `position 17: '\x7f' is written with a backslash`,
		`attributes.a.b = "x"`:                          `position 13: "." where "="`,
		`attributes.name = com`:                         `position 19: "com" where a string in double quotes`,
		`attributes.name = attributes.x`:                `position 19: "attributes" where a string`,
		`attributes.name = 'com'`:                       `position 19: '\'' stands in strings only`,
		`attributes.name == "com"`:                      `position 18: "=" where a string`,
		`attributes.name ! "com"`:                       `position 17: '!' stands in strings only`,
		`Attributes:name`:                               `position 1: "Attributes" where attributes`,
		`attributes:\u307F`:                             `position 12: '\\' stands in strings only`,
		`attributes:みん`:                                 `position 12: 'み' stands in strings only`,
		"attributes:\xff":                               "position 12: '\ufffd' stands in strings only",
		`attributes:"a`:                                 "position 12: the string has no end",
		`attributes:"a\`:                                "position 14: no such escape",
		`attributes:"\q"`:                               "position 13: no such escape",
		`attributes:"\u12"`:                             "position 13: no such escape",
		`attributes:"\xff"`:                             "position 12: the string is not UTF-8",
		"attributes:\"\xff\"":                           "position 12: the string is not UTF-8",
		"attributes:\"a\nb\"":                           `position 14: '\n' is written with a backslash`,
		`attributes:a and attributes:b`:                 `position 14: "and": operators are in upper case`,
		`not attributes:a`:                              `position 1: "not": operators`,
		`attributes:a attributes:b`:                     `position 14: "attributes" where AND, OR or the end`,
		`attributes:a AND`:                              "position 17: the filter ends where attributes",
		`AND attributes:a`:                              `position 1: "AND" where attributes`,
		`attributes:a OR OR attributes:b`:               `position 17: "OR" where`,
		`(attributes:a`:                                 `position 14: the filter ends where ")"`,
		`attributes:a)`:                                 `position 13: ")" where AND`,
		`()`:                                            `position 2: ")" where attributes`,
		`hasPrefix`:                                     `position 10: the filter ends where "("`,
		`hasPrefix(name, "x")`:                          `position 11: "name" where attributes`,
		`hasPrefix(attributes:n, "x")`:                  `position 21: ":" where "."`,
		`hasPrefix(attributes.n "x")`:                   `position 24: "x" where ","`,
		`hasPrefix(attributes.n, x)`:                    `position 25: "x" where a string`,
		`hasPrefix(attributes.n, "x"`:                   `position 28: the filter ends where ")"`,
		`hasprefix(attributes.n, "x")`:                  `position 1: "hasprefix" where attributes`,
		`hasSuffix(attributes.n, "x")`:                  `position 1: "hasSuffix" where attributes`,
		`attributes:a AND attributes:b OR attributes:c`: "position 31: AND and OR need parentheses",
		`attributes:a OR attributes:b AND attributes:c`: "position 30: AND and OR need parentheses",
		`attributes.name = "com" AND ("net" OR "org")`:  `position 30: "net" where attributes`,
		`attributes:` + strings.Repeat("a", 246):        "257 bytes, a filter has at most 256",
	} {
		if f, err := Parse(text); err == nil {
			t.Errorf("%s is taken", text)
		} else if f != nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %q, want %q", text, err, want)
		}
	}
	if _, err := Parse(`attributes:` + strings.Repeat("a", 245)); err != nil {
		t.Errorf("256 bytes: %v", err)
	}
}

// FuzzFilter shows that no text makes the parser panic, that no parsed filter
// fails, and that the negation of a filter is its opposite.
func FuzzFilter(f *testing.F) {
	for _, text := range []string{
		``, `attributes:a`, `attributes."a\u307F\x61\141" != "b\""`, `hasPrefix(attributes.a-b, "c")`,
		`NOT (attributes:a AND -attributes:b) OR attributes.c = "d"`, `((((`, `attributes:"`, `attributes."\`, `NOT`, "\xff", `--(`,
	} {
		f.Add(text, "a", "b")
	}
	f.Fuzz(func(t *testing.T, text, key, value string) {
		parsed, err := Parse(text)
		if err != nil {
			return
		}
		attributes := map[string]string{key: value}
		got := parsed.Matches(attributes)
		if text == "" || len(text) > maxSize-len("NOT ()") {
			return
		}
		negated, err := Parse("NOT (" + text + ")")
		if err != nil || negated.Matches(attributes) == got {
			t.Errorf("NOT (%s): %v", text, err)
		}
	})
}

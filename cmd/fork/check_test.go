package main

import (
	"strings"
	"testing"
)

func TestModulePaths(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"example.org/pair", "github.com/Acme/pair.v2", "git.acme-corp.io/a_b/~c/pair/v2"} {
		if err := checkModule(good); err != nil {
			t.Errorf("checkModule(%q): %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "pair", "acme/pair", "example.org", "example.org/", "/example.org/pair", "example.org//pair",
		"example.org/../pair", "example.org/pair.", "example.org/pa ir", "https://example.org/pair", "example.org/pair;ls",
	} {
		if err := checkModule(bad); err == nil {
			t.Errorf("checkModule(%q) accepts it", bad)
		}
	}
}

var sample = words{aggregate: "apple", plural: "apples", owner: "orchard", reader: "market", name: "farm"}

// TestHostileWords gives each kind of word that fork refuses, with the flag that the error
// names, and the most similar ones that it takes.
func TestHostileWords(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		give  words
		blame string // the beginning of the error; empty: none
	}{
		"nothing":                  {words{}, ""},
		"all":                      {theirs, ""},
		"irregular plural":         {words{aggregate: "mouse", plural: "mice"}, ""},
		"a plural":                 {words{aggregate: "news"}, ""},
		"a digit":                  {words{reader: "shelf2"}, ""},
		"a digit in the middle":    {words{reader: "b2b"}, `--reader: "b2b" has a letter behind a digit`},
		"a plural with a digit":    {words{aggregate: "item2"}, `--plural: "item2s" has a letter behind a digit`},
		"upper case":               {words{aggregate: "Product"}, `--aggregate: "Product" is not one word`},
		"two words":                {words{name: "my-shop"}, `--name: "my-shop" is not one word`},
		"an underscore":            {words{owner: "my_shop"}, `--owner: "my_shop" is not one word`},
		"a digit first":            {words{owner: "2shops"}, `--owner: "2shops" is not one word`},
		"a path":                   {words{reader: "../x"}, `--reader: "../x" is not one word`},
		"SQL in a word":            {words{reader: "x;drop"}, `--reader: "x;drop" is not one word`},
		"two letters":              {words{name: "go"}, `--name: "go" has 2 letters, want 3 to 16`},
		"seventeen letters":        {words{name: strings.Repeat("n", 17)}, `--name: "nnnnnnnnnnnnnnnnn" has 17 letters`},
		"keyword of Go":            {words{aggregate: "type"}, `--aggregate: "type" is a keyword of Go`},
		"predeclared name":         {words{owner: "string"}, `--owner: "string" is a predeclared name of Go`},
		"no topic":                 {words{aggregate: "googol"}, `--aggregate: "googol" begins with goog`},
		"keyword of SQL":           {words{aggregate: "order"}, `--aggregate: "order" is a keyword of SQL`},
		"keyword of proto":         {words{reader: "message"}, `--reader: "message" is a keyword of Protocol Buffers`},
		"plural is the singular":   {words{aggregate: "sheep", plural: "sheep"}, `--aggregate: "sheep" contains --plural`},
		"two roles":                {words{aggregate: "pear", owner: "pear"}, `--aggregate: "pear" contains --owner`},
		"one in another":           {words{reader: "gannetry", name: "gannet"}, `--reader: "gannetry" contains --name, "gannet"`},
		"plural in another":        {words{aggregate: "pear", reader: "pears"}, `--plural: "pears" contains --reader, "pears"`},
		"the word of another role": {words{owner: "market", reader: "stall"}, `--owner: "market" is the word of --reader here`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkWords(sample, c.give.complete(sample))
			if c.blame == "" && err != nil || c.blame != "" && (err == nil || !strings.HasPrefix(err.Error(), c.blame)) {
				t.Errorf("%+v: %v, want %q", c.give, err, c.blame)
			}
		})
	}
}

// TestWordsInUse: a word of the tree would make names that are taken.
func TestWordsInUse(t *testing.T) {
	t.Parallel()
	files := []file{
		{name: "a.go", content: []byte("package a\n\n// a comment on fruit\nvar appleBasket, s = 1, `\\nbox`\n")},
		{name: "README.md", content: []byte("A crate of apples.\n")},
		{name: "a.sql", content: []byte("CREATE TABLE crates ();\nGRANT SELECT ON barrel_counts TO x;\n")},
	}
	for word, want := range map[string]string{
		"basket": "a.go:4", "box": "a.go:4", "barrel": "a.sql:2", "crates": "a.sql:1",
		"crate": "a.sql:1", "fruit": "", "bask": "", "coun": "", "rate": "",
	} {
		if got := uses(word, files); got != want {
			t.Errorf("uses(%q) = %q, want %q", word, got, want)
		}
	}
	to := words{aggregate: "pear", plural: "crates", owner: "orchard", reader: "market", name: "farm"}
	if err := checkUnused(sample, to, files); err == nil || err.Error() != `--plural: "crates" has a meaning here already: a.sql:1` {
		t.Errorf("a plural in use: %v", err)
	}
	to.owner, to.name = "barrel", "box"
	err := checkUnused(sample, to, files)
	for _, want := range []string{`--plural: "crates"`, `--owner: "barrel" has a meaning here already: a.sql:2`, `--name: "box"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("three words in use: %v, want %q", err, want)
		}
	}
}

// TestNamesThatTheRemovalWouldTake: the chapter's commands remove whole lines, and imports have the
// module in each.
func TestNamesThatTheRemovalWouldTake(t *testing.T) {
	t.Parallel()
	if err := checkRemoval(module, theirs); err != nil {
		t.Error(err)
	}
	engager := theirs
	engager.aggregate = "engager"
	for blame, err := range map[string]error{
		"--module": checkRemoval("example.org/engage/shop", theirs), "--aggregate": checkRemoval(module, engager),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), blame) {
			t.Errorf("%v, want a refusal of %s", err, blame)
		}
	}
}

package repo

import (
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// Title returns the word with its first letter in upper case.
func Title(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// Plural returns the regular plural of an English word.
func Plural(word string) string {
	switch {
	case strings.HasSuffix(word, "y") && len(word) > 1 && !strings.ContainsRune("aeiou", rune(word[len(word)-2])):
		return word[:len(word)-1] + "ies"
	case strings.HasSuffix(word, "iz"): // quizzes
		return word + "zes"
	case strings.HasSuffix(word, "s"), strings.HasSuffix(word, "x"), strings.HasSuffix(word, "z"),
		strings.HasSuffix(word, "ch"), strings.HasSuffix(word, "sh"):
		return word + "es"
	}
	return word + "s"
}

// Article returns "an" if a word begins with the sound of a vowel, and "a" if not. It guesses from
// the spelling.
func Article(word string) string {
	word = strings.ToLower(word)
	for _, consonant := range []string{"uni", "use", "usa", "uti", "eu", "one"} {
		if strings.HasPrefix(word, consonant) {
			return "a"
		}
	}
	if strings.IndexByte("aeiou", word[0]) >= 0 {
		return "an"
	}
	return "a"
}

// Reserved returns what a word is that cannot be a name, such as "a keyword of Go". For any other
// word it returns "".
func Reserved(word string) string {
	switch {
	case token.IsKeyword(word):
		return "a keyword of Go"
	case types.Universe.Lookup(word) != nil:
		return "a predeclared name of Go"
	case slices.Contains(reservedSQL, word):
		return "a keyword of SQL"
	case slices.Contains(reservedProto, word):
		return "a keyword of Protocol Buffers"
	}
	return ""
}

// reservedSQL are the words that cannot be the name of a column without quotes. They are the
// reserved words of Postgres, and the words that Postgres reserves for types and functions.
var reservedSQL = strings.Fields(`all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate
	collation column concurrently constraint create cross current_catalog current_date current_role current_schema current_time
	current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze from full grant
	group having ilike in initially inner intersect into is isnull join lateral leading left like limit localtime localtimestamp
	natural not notnull null offset on only or order outer overlaps placing primary references returning right select session_user
	similar some symmetric system_user table tablesample then to trailing true union unique user using variadic verbose when where
	window with values`)

// reservedProto are the words that have a meaning in a protobuf file, and the names of the methods
// of each generated message.
var reservedProto = strings.Fields(`syntax edition import weak public package option repeated optional required group oneof map extensions
	reserved to max enum message extend service rpc stream returns double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64
	sfixed32 sfixed64 bool string bytes reset proto_message proto_reflect descriptor marshal unmarshal inf nan`)

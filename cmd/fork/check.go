package main

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// modulePath matches a module path that has a domain and at least one more element. Go would accept
// a single word. But fork replaces the module path as text. If the fork were forked in turn, a
// single word would also match other text.
var modulePath = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[A-Za-z0-9_~-]+(\.[A-Za-z0-9_~-]+)*)+$`)

func checkModule(module string) error {
	if !modulePath.MatchString(module) {
		return fmt.Errorf("%q is not a module path like example.org/acme/shop", module)
	}
	return nil
}

// maxWord is the maximum length of a word. It keeps the longest names that contain a word below two
// limits: 63 bytes for a name in Postgres, and 30 characters for a service account of Google Cloud.
const maxWord = 16

var wordPattern = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// digitInside matches a word that protoc-gen-go spells in another way than fork: it writes a letter
// behind a digit in upper case.
var digitInside = regexp.MustCompile(`\d[a-z]`)

// complete returns w with each missing word filled in from the words in from. If w has an aggregate
// and no plural, the plural is the regular plural of w's aggregate.
func (w words) complete(from words) words {
	if w.aggregate == "" {
		w.aggregate = from.aggregate
		w.plural = cmp.Or(w.plural, from.plural)
	}
	w.plural = cmp.Or(w.plural, repo.Plural(w.aggregate))
	w.owner = cmp.Or(w.owner, from.owner)
	w.reader = cmp.Or(w.reader, from.reader)
	w.name = cmp.Or(w.name, from.name)
	return w
}

// checkWords refuses words that cannot be names, and words that a fork of the fork could not
// tell apart.
func checkWords(from, to words) error {
	if to == from {
		return nil
	}
	all, old := to.all(), from.all()
	for i, w := range all {
		isNew := w.word != old[i].word
		if isNew {
			if err := checkWord(w.word); err != nil {
				return fmt.Errorf("%s: %w", w.flag, err)
			}
		}
		for j, other := range all {
			if i == j || !isNew && other.word == old[j].word {
				continue
			}
			if err := checkApart(w, other, isNew, old[j].word); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkApart refuses the word of w if it contains the word of other. A plural may contain its
// singular. If the word of w is new, checkApart also refuses the word that the flag of other has in
// this repository.
func checkApart(w, other flagged, isNew bool, old string) error {
	isPlural := w.flag == "--plural" && other.flag == "--aggregate"
	if strings.Contains(w.word, other.word) && (!isPlural || w.word == other.word) {
		return fmt.Errorf("%s: %q contains %s, %q: give words that are apart", w.flag, w.word, other.flag, other.word)
	}
	if isNew && w.word == old {
		return fmt.Errorf("%s: %q is the word of %s here", w.flag, w.word, other.flag)
	}
	return nil
}

func checkWord(word string) error {
	switch {
	case !wordPattern.MatchString(word):
		return fmt.Errorf("%q is not one word of lower-case letters and digits, beginning with a letter", word)
	case digitInside.MatchString(word):
		return fmt.Errorf("%q has a letter behind a digit, which protobuf spells in another way in Go", word)
	case len(word) < 3 || len(word) > maxWord:
		return fmt.Errorf("%q has %d letters, want 3 to %d", word, len(word), maxWord)
	case repo.Reserved(word) != "":
		return fmt.Errorf("%q is %s", word, repo.Reserved(word))
	case slices.Contains(statements, word):
		return fmt.Errorf("%q is a keyword of SQL", word)
	case strings.HasPrefix(word, "goog"):
		return fmt.Errorf("%q begins with goog, as no name of a topic may in Pub/Sub", word)
	}
	return nil
}

// statements are words that begin or continue a statement of SQL, and names of types. Postgres does
// not reserve them. A name after such a word could be read as a part of the statement.
var statements = strings.Fields(`delete update drop alter schema role index view trigger function language set row rows transaction
	value date time timestamp interval text json`)

// checkUnused refuses words that the files already use with another meaning. The error names all of
// these words, each with the first place of its use. Names that contain such a word could be taken. A
// fork of the fork would replace the word in both meanings.
func checkUnused(from, to words, files []file) error {
	old := from.all()
	var all []error
	for i, w := range to.all() {
		if w.word == old[i].word {
			continue
		}
		if where := uses(w.word, files); where != "" {
			all = append(all, fmt.Errorf("%s: %q has a meaning here already: %s", w.flag, w.word, where))
		}
	}
	return errors.Join(all...)
}

// examples matches the paths of files that use the words of forks only to test this command.
var examples = regexp.MustCompile(`^(cmd/fork|\.ci)/`)

// uses returns the first place that has the word, alone or as a part of an identifier. Comments,
// documents, go.sum, binary files and the files that examples matches do not count.
func uses(word string, files []file) string {
	spellings := []string{word, repo.Title(word), strings.ToUpper(word)}
	pattern := regexp.MustCompile(strings.Join(spellings, "|"))
	for _, f := range files {
		if path.Ext(f.name) == ".md" || path.Base(f.name) == "go.sum" || examples.MatchString(f.name) || isBinary(f.content) {
			continue
		}
		text := string(f.content)
		if !slices.ContainsFunc(spellings, func(spelling string) bool { return strings.Contains(text, spelling) }) {
			continue // a pattern takes a hundred times as long, and few files have the word
		}
		at := kinds(f.name, text)
		for _, found := range pattern.FindAllStringIndex(text, -1) {
			if standsAlone(text, found[0], found[1]) && at(found[0]) != prose {
				return fmt.Sprintf("%s:%d", f.name, 1+strings.Count(text[:found[0]], "\n"))
			}
		}
	}
	return ""
}

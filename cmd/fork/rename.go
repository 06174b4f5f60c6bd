package main

import (
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"

	"example.com/lockstep/cmd/fork/repo"
)

// A kind says how a reader of a file takes a part of the file: as code, as a literal or as prose.
type kind string

const (
	code    kind = "code"
	literal kind = "literal" // a string of Go, or code in a sentence
	prose   kind = "prose"   // a comment, or a sentence of a document
)

// A renamer replaces the words of this repository by those of a fork.
type renamer struct {
	from, to words
	pattern  *regexp.Regexp
	// decide has the rules in the order in which means tries them.
	decide []rule
}

func newRenamer(from, to words, decide []rule) *renamer {
	var spellings []string
	// A plural precedes its singular, so that the pattern tries the plural first.
	for _, word := range []string{from.plural, from.aggregate, from.owner, from.reader, from.name} {
		spellings = append(spellings, word, repo.Title(word), strings.ToUpper(word))
	}
	return &renamer{from: from, to: to, pattern: regexp.MustCompile(strings.Join(spellings, "|")), decide: decide}
}

// An occurrence is a word of this repository in a text.
type occurrence struct {
	file string
	kind kind
	// ident is the identifier that contains word. before and after are the parts of the line before
	// and after word. previous is the word before word, even if previous stands on the line above.
	word, ident, before, after, previous string
}

// name replaces the words in the path file. text replaces the words in content. The parameter file
// of text is the path of the file before its renaming.
func (r *renamer) name(file string) string { return r.rename(file, file, nil) }

func (r *renamer) text(file, content string) string {
	return r.rename(file, content, kinds(file, content))
}

func (r *renamer) rename(file, content string, at func(int) kind) string {
	var out []byte
	done := 0
	for _, found := range r.pattern.FindAllStringIndex(content, -1) {
		start, end := found[0], found[1]
		if start < done || !standsAlone(content, start, end) {
			continue
		}
		o := r.occurrence(file, content, start, end)
		if at != nil {
			o.kind = at(start)
		} else {
			o.kind = code
		}
		replacement := r.replace(o)
		out = append(out, content[done:start]...)
		if replacement != o.word {
			out = withArticle(out, o, replacement)
		}
		out = append(out, replacement...)
		done = end
	}
	return string(append(out, content[done:]...))
}

// vicinity is the number of bytes that an occurrence keeps of a line on each side of the word. No
// rule needs more.
const vicinity = 100

func (r *renamer) occurrence(file, content string, start, end int) occurrence {
	line := strings.LastIndexByte(content[:start], '\n') + 1
	line = max(line, start-vicinity)
	rest := content[end:min(len(content), end+vicinity)]
	if i := strings.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i]
	}
	first, last := start, end
	for first > 0 && isWord(content[first-1]) && !isEscape(content, first-1) {
		first--
	}
	for last < len(content) && isWord(content[last]) {
		last++
	}
	return occurrence{
		file: file, word: content[start:end], ident: content[first:last],
		before: content[line:start], after: rest, previous: wordBefore(content[max(0, start-vicinity):start]),
	}
}

// replace returns the fork's word for an occurrence.
func (r *renamer) replace(o occurrence) string {
	// The names of the authors in the license stay. The names of Postgres's own tables stay, too.
	if strings.HasPrefix(o.after, " authors") || strings.HasSuffix(o.before, "pg_") {
		return o.word
	}
	from, to := r.from.all(), r.to.all()
	i := slices.IndexFunc(from, func(w flagged) bool { return strings.EqualFold(w.word, o.word) })
	switch {
	case !r.from.ambiguous():
	case from[i].word == r.from.aggregate && r.means(o) == owner:
		return spelled(r.to.owner, o.word)
	// An anchor has no apostrophe. So the genitive of the owner looks like a plural in the anchor of
	// a heading.
	case from[i].word == r.from.plural && strings.HasPrefix(o.after, "-database-"):
		return r.to.owner + "s"
	}
	return spelled(to[i].word, o.word)
}

// means returns the meaning of an occurrence if one word names both the aggregate and its owner.
func (r *renamer) means(o occurrence) meaning {
	for _, c := range r.decide {
		if c.matches(o) {
			return c.means
		}
	}
	return aggregate
}

// standsAlone reports whether content[start:end] is a whole word or a whole part of an identifier.
// It returns false for a part of another word. A version may follow the word, as in videov1.
func standsAlone(content string, start, end int) bool {
	first, second, last := content[start], content[start+1], content[end-1]
	afterLetter := start > 0 && isLetter(content[start-1]) && !isEscape(content, start-1)
	if afterLetter && (isLower(first) || isUpper(second)) {
		return false // Title alone begins a part of an identifier after a letter
	}
	rest := content[end:]
	if rest == "" || !isLetter(rest[0]) {
		return true
	}
	return isLower(last) && (isUpper(rest[0]) || glued.MatchString(rest))
}

// glued matches text that may follow a word without a separator. This is a version after a package
// name in an alias, or an s after an owner's name in an anchor.
var glued = regexp.MustCompile(`^(v\d|eventsv\d|s\b)`)

func isUpper(c byte) bool  { return 'A' <= c && c <= 'Z' }
func isLower(c byte) bool  { return 'a' <= c && c <= 'z' }
func isLetter(c byte) bool { return isUpper(c) || isLower(c) }
func isWord(c byte) bool   { return isLetter(c) || c == '_' || '0' <= c && c <= '9' }

// isEscape reports whether the letter at i belongs to an escape such as \n.
func isEscape(content string, i int) bool {
	return i > 0 && content[i-1] == '\\' && strings.IndexByte("ntr", content[i]) >= 0
}

var lastWord = regexp.MustCompile("([A-Za-z0-9]+)[`\"]?[ \t]*(?:\n[ \t]*(?:(?://|--|#)[ \t]*)?)?$")

func wordBefore(text string) string {
	m := lastWord.FindStringSubmatch(text)
	if len(m) == 0 || strings.HasSuffix(text, m[1]) {
		return "" // nothing is between them, because both are parts of one identifier
	}
	return strings.ToLower(m[1])
}

var (
	articleBefore = regexp.MustCompile("(^|[^A-Za-z0-9_.])([Aa])(n?)([ -][`\"*]?)$")
	articleInName = regexp.MustCompile(`[a-z]A(n?)$`)
)

// withArticle returns text, which stands directly before an occurrence. If text ends with an
// article, withArticle changes the article to "a" or "an", as the replacement needs it. In Go code
// it leaves the word a alone, because a is a variable there.
func withArticle(text []byte, o occurrence, replacement string) []byte {
	before := max(0, len(text)-8)
	tail, n := string(text[before:]), repo.Article(replacement)[1:]
	isCode := o.kind == code && path.Ext(o.file) == ".go"
	if m := articleBefore.FindStringSubmatchIndex(tail); m != nil && !isCode {
		return append(text[:before+m[5]], n+tail[m[8]:]...)
	}
	isTitle := isUpper(o.word[0]) && isLower(o.word[1])
	if m := articleInName.FindStringSubmatchIndex(tail); m != nil && isTitle {
		return append(text[:before+m[2]], n...)
	}
	return text
}

// kinds returns a function that returns the kind of the text at an offset of content. The function
// must be called with ascending offsets.
func kinds(file, content string) func(int) kind {
	switch path.Ext(file) {
	case ".go":
		return kindsOfGo(content)
	case ".md":
		return func(int) kind { return prose }
	}
	return func(at int) kind {
		line := content[strings.LastIndexByte(content[:at], '\n')+1 : at]
		if comment.MatchString(line) {
			return prose
		}
		return code
	}
}

var comment = regexp.MustCompile(`^\s*(//|--|#)|\s(//|--|#)\s`)

func kindsOfGo(content string) func(int) kind {
	var (
		s     scanner.Scanner
		files = token.NewFileSet()
		file  = files.AddFile("", files.Base(), len(content))
		ends  []int
		of    []kind
	)
	s.Init(file, []byte(content), func(token.Position, string) {}, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		if tok == token.EOF {
			break
		}
		k := code
		switch tok {
		case token.COMMENT:
			k = prose
		case token.STRING, token.CHAR:
			k = literal
		default:
		}
		ends, of = append(ends, file.Offset(pos)+len(text)), append(of, k)
	}
	next := 0
	return func(at int) kind { // offsets come in order
		for next < len(ends) && ends[next] <= at {
			next++
		}
		if next == len(of) {
			return code
		}
		return of[next]
	}
}

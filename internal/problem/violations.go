package problem

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// These limits bound the answer to a request with faults everywhere, because the answer repeats
// names from the request. Over gRPC the answer is in a trailer, and clients accept a few KB of
// trailers.
const (
	maxViolations = 20
	maxText       = 200 // bytes
)

// Violations collects the faulty fields of a request, so that a client learns all of them
// at once. It keeps the first 20, and cuts long names and details. The zero value is empty.
type Violations []Field

// Require adds a violation unless ok. It keeps the first violation of a field, because a report
// that a null title is too short is of no use.
func (v *Violations) Require(ok bool, field, detail string) {
	if ok || len(*v) == maxViolations {
		return
	}
	violation := Field{Field: cut(field), Detail: cut(detail)}
	if !slices.ContainsFunc(*v, func(x Field) bool { return x.Field == violation.Field }) {
		*v = append(*v, violation)
	}
}

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// Merge adds the violations that another part of the program has found.
func (v *Violations) Merge(more Violations) {
	for _, x := range more {
		v.Require(false, x.Field, x.Detail)
	}
}

// Take adds the violations in err and returns nil. If err is about anything else than the fields of
// the request, Take returns err.
func (v *Violations) Take(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != CodeInvalid || e.Reason != "" || len(e.Fields) == 0 {
		return err
	}
	v.Merge(e.Fields)
	return nil
}

// Err returns nil if there are no violations.
func (v Violations) Err() error {
	if len(v) == 0 {
		return nil
	}
	return InvalidFields(v)
}

// Text requires at least low and at most high characters in s. It refuses control characters that
// are not in allowed. Postgres refuses NUL, and no line of text needs the other control characters.
func (v *Violations) Text(field, s string, low, high int, allowed string) {
	v.Require(utf8.ValidString(s), field, "must be valid UTF-8")
	v.Require(!strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) && !strings.ContainsRune(allowed, r)
	}), field, "must not contain control characters")
	n := utf8.RuneCountInString(s)
	v.Require(low <= n && n <= high, field, fmt.Sprintf("must have %d to %d characters, has %d", low, high, n))
}

// Line is like Text, but for one line, such as a title, that is shown next to other users' lines. If
// it may not be empty, it may not be blank either. Line also refuses characters that show nothing
// themselves but change the text around them: see isHidden.
func (v *Violations) Line(field, s string, low, high int) {
	v.Require(!strings.ContainsFunc(regionalFlags.Replace(s), isHidden), field,
		"must not contain characters that end a line, reorder text or have no width")
	v.Text(field, s, low, high, "")
	v.Require(low == 0 || strings.ContainsFunc(s, shows), field, "must not be blank")
}

// isHidden reports whether a line may not contain r. Separators of lines and paragraphs make two
// lines of one. Embeddings, overrides and isolates turn text around and stay open beyond its end.
// With other characters without a width, such as the zero-width space, two different titles look
// alike. A line may contain the marks that scripts need. These are the joiners of Persian, of Indic
// scripts and of emoji (U+200C, U+200D), and the left-to-right, right-to-left and Arabic letter
// marks, whose effect ends with the next character. It may also contain selectors of variants, which
// emoji and names in Japanese need, and marks in front of numbers, which Unicode counts as format
// characters although they have a width.
func isHidden(r rune) bool {
	switch r {
	case '\u200c', '\u200d', '\u200e', '\u200f', '\u061c':
		return false
	}
	return unicode.In(r, unicode.Zl, unicode.Zp, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point) &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// shows reports whether r can be the only character of a line that is not blank.
func shows(r rune) bool { return !unicode.In(r, unicode.White_Space, unicode.Cf) }

// regionalFlags removes the flags of England, Scotland and Wales. These three emoji are a black flag
// and tag characters. A tag anywhere else is hidden.
var regionalFlags = strings.NewReplacer(regionalFlag("gbeng"), "", regionalFlag("gbsct"), "", regionalFlag("gbwls"), "")

func regionalFlag(region string) string {
	const flag, tag, end = '\U0001f3f4', '\U000e0000', '\U000e007f'
	emoji := []rune{flag}
	for _, r := range region {
		emoji = append(emoji, tag+r)
	}
	return string(append(emoji, end))
}

// UUID accepts only the canonical form. uuid.Parse also accepts braces and a URN. With these forms,
// one thing would have several addresses.
func (v *Violations) UUID(field, s string) uuid.UUID {
	id, err := uuid.Parse(s)
	v.Require(err == nil && len(s) == len(uuid.Nil.String()), field, "must be a UUID")
	return id
}

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

// Line is like Text, but for one line, such as a title, that is shown next to other users' lines.
// Line also refuses characters that show nothing themselves but change the text around them.
// Embeddings, overrides and isolates (U+202A to U+202E, U+2066 to U+2069) turn text around and stay
// open beyond its end. With the zero-width space or the byte order mark, two different titles look
// alike. Line allows the marks that scripts need. These are the joiners of Persian, of Indic
// scripts and of emoji (U+200C, U+200D), and the left-to-right, right-to-left and Arabic letter
// marks, whose effect ends with the next character.
func (v *Violations) Line(field, s string, low, high int) {
	v.Require(!strings.ContainsFunc(s, func(r rune) bool {
		return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' || r == '\u200b' || r == '\ufeff'
	}), field, "must not contain characters that reorder text or have no width")
	v.Text(field, s, low, high, "")
}

// UUID accepts only the canonical form. uuid.Parse also accepts braces and a URN. With these forms,
// one thing would have several addresses.
func (v *Violations) UUID(field, s string) uuid.UUID {
	id, err := uuid.Parse(s)
	v.Require(err == nil && len(s) == len(uuid.Nil.String()), field, "must be a UUID")
	return id
}

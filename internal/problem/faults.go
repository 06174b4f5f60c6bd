package problem

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// The answer to a request with faults everywhere is bounded, because it repeats names
// from the request: over gRPC it is a trailer, and clients accept a few KB of trailers.
const (
	maxFaults = 20
	maxText   = 200 // bytes
)

// Faults collects the faults of a request, so that a client learns all of them at once:
// the first 20, and of a very long name the beginning. The zero value is empty.
type Faults []Field

// Unless adds a fault where a condition does not hold. Of a field's faults the first is
// kept: it is no use to report that a null title is too short.
func (f *Faults) Unless(ok bool, field, detail string) {
	if ok || len(*f) == maxFaults {
		return
	}
	fault := Field{Field: cut(field), Detail: cut(detail)}
	if !slices.ContainsFunc(*f, func(x Field) bool { return x.Field == fault.Field }) {
		*f = append(*f, fault)
	}
}

func cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// Merge adds the faults that another part of the program has found.
func (f *Faults) Merge(more Faults) {
	for _, x := range more {
		f.Unless(false, x.Field, x.Detail)
	}
}

// Err is nil without faults.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return InvalidFields(f)
}

// Text expects low to high characters and of the control characters only those
// in allowed: Postgres refuses NUL, no line of text needs the others.
func (f *Faults) Text(field, s string, low, high int, allowed string) {
	f.Unless(utf8.ValidString(s), field, "must be valid UTF-8")
	f.Unless(!strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) && !strings.ContainsRune(allowed, r)
	}), field, "must not contain control characters")
	n := utf8.RuneCountInString(s)
	f.Unless(low <= n && n <= high, field, fmt.Sprintf("must have %d to %d characters, has %d", low, high, n))
}

// Line is Text for one line, such as a title, that is shown next to other users' lines.
// It refuses characters that change the text around them and show nothing themselves:
// the embeddings, overrides and isolates that turn text around and stay open beyond its
// end (U+202A to U+202E, U+2066 to U+2069), the zero-width space and the byte order
// mark, with which two titles look alike. It keeps the marks that scripts need: the
// joiners of Persian, of Indic scripts and of emoji (U+200C, U+200D), and the
// left-to-right, right-to-left and Arabic letter marks, which end with the next
// character.
func (f *Faults) Line(field, s string, low, high int) {
	f.Unless(!strings.ContainsFunc(s, func(r rune) bool {
		return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' || r == '\u200b' || r == '\ufeff'
	}), field, "must not contain characters that reorder text or have no width")
	f.Text(field, s, low, high, "")
}

// UUID accepts the canonical form only: uuid.Parse also accepts braces and a URN, and
// then one thing would have several addresses.
func (f *Faults) UUID(field, s string) uuid.UUID {
	id, err := uuid.Parse(s)
	f.Unless(err == nil && len(s) == len(uuid.Nil.String()), field, "must be a UUID")
	return id
}

package video

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
)

// The limits keep an event far under outbox.MaxPayloadBytes.
const (
	maxTitle       = 500
	maxDescription = 10_000
	maxReason      = 500
	// maxDuration is ten years: more is a mistake in the unit.
	maxDuration = 10 * 365 * 24 * 60 * 60
)

// changeable are the fields that set knows. An uploader is given once.
func changeable(field string) bool {
	return slices.Contains([]string{"title", "description", "duration_seconds", "published_at"}, field)
}

// set gives v the named fields of to and returns the names of those that
// differed. Names that nobody may change are left to faults.
func (v *Video) set(fields []string, to Video) (changed []string) {
	before := *v
	for _, field := range fields {
		differs := false
		switch field {
		case "title":
			v.Title, differs = to.Title, to.Title != before.Title
		case "description":
			v.Description, differs = to.Description, to.Description != before.Description
		case "duration_seconds":
			v.DurationSeconds, differs = to.DurationSeconds, to.DurationSeconds != before.DurationSeconds
		case "published_at":
			v.PublishedAt, differs = to.PublishedAt, !sameTime(to.PublishedAt, before.PublishedAt)
		}
		if differs {
			changed = append(changed, field)
		}
	}
	return changed
}

func sameTime(a, b *time.Time) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}

// faults is what is wrong with the named fields of v.
func (v Video) faults(fields ...string) (f faults) {
	for _, field := range fields {
		switch field {
		case "uploader_id":
			f.unless(v.UploaderID != uuid.Nil, field, "must be a UUID")
		case "title":
			f.text(field, v.Title, 1, maxTitle, "")
		case "description":
			f.text(field, v.Description, 0, maxDescription, "\n\r\t")
		case "duration_seconds":
			f.unless(v.DurationSeconds >= 0 && v.DurationSeconds <= maxDuration, field, fmt.Sprintf("must lie between 0 and %d", maxDuration))
		case "published_at":
			// What RFC 3339 and protobuf can both express, in UTC.
			f.unless(v.PublishedAt == nil || v.PublishedAt.Year() >= 1 && v.PublishedAt.Year() <= 9999, field, "must lie between the years 1 and 9999")
		}
	}
	return f
}

// faults collects what is wrong with a request, so that a caller learns all of
// it at once.
type faults []problem.Field

// unless adds a fault where a condition does not hold. Of a field's faults the
// first is kept: a title that is null need not be told that it is too short.
func (f *faults) unless(ok bool, field, detail string) {
	if !ok && !slices.ContainsFunc(*f, func(x problem.Field) bool { return x.Field == field }) {
		*f = append(*f, problem.Field{Field: field, Detail: detail})
	}
}

func (f *faults) merge(more faults) {
	for _, x := range more {
		f.unless(false, x.Field, x.Detail)
	}
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return problem.InvalidFields(f)
}

// text expects low to high characters and of the control characters only those
// in allowed: Postgres refuses NUL, no line of text needs the others.
func (f *faults) text(field, s string, low, high int, allowed string) {
	f.unless(utf8.ValidString(s), field, "must be valid UTF-8")
	f.unless(!strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) && !strings.ContainsRune(allowed, r)
	}), field, "must not contain control characters")
	n := utf8.RuneCountInString(s)
	f.unless(low <= n && n <= high, field, fmt.Sprintf("must have %d to %d characters, has %d", low, high, n))
}

// uuid takes the canonical form only: uuid.Parse would also take braces and a
// URN, and one video would have several addresses.
func (f *faults) uuid(field, s string) uuid.UUID {
	id, err := uuid.Parse(s)
	f.unless(err == nil && len(s) == len(id.String()), field, "must be a UUID")
	return id
}

// micros is t as the database keeps it.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

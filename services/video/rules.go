package video

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
)

// The limits keep an event far under outbox.MaxPayloadBytes.
const (
	maxTitle       = 500
	maxDescription = 10_000
	maxReason      = 500
	// maxMask bounds the number of names in a field mask; a name may be repeated.
	maxMask = 8
	// maxDuration is ten years: more is a mistake in the unit.
	maxDuration = 10 * 365 * 24 * 60 * 60
)

// changeable are the fields that set can change. The uploader is given at creation
// only.
var changeable = []string{"title", "description", "duration_seconds", "published_at"}

// set gives v the named fields of to and returns the names of those that differed.
// Names of fields that no caller may change are left to faults.
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

// fields are the named fields of v with their values, as REST names and writes them.
func (v Video) fields(names ...string) map[string]any {
	all := map[string]any{
		"uploader_id": v.UploaderID, "title": v.Title, "description": v.Description, "duration_seconds": v.DurationSeconds,
		"published_at": nil,
	}
	if v.PublishedAt != nil {
		all["published_at"] = *v.PublishedAt
	}
	maps.DeleteFunc(all, func(name string, _ any) bool { return !slices.Contains(names, name) })
	return all
}

// given drops the fields of a new thing that have their zero value: a protocol may be
// unable to tell these from absent fields.
func given(fields map[string]any) map[string]any {
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == nil || reflect.ValueOf(value).IsZero() })
	return fields
}

func sameTime(a, b *time.Time) bool {
	return a == b || a != nil && b != nil && a.Equal(*b)
}

// faults are the faults of the named fields of v.
func (v Video) faults(fields ...string) (f problem.Violations) {
	for _, field := range fields {
		switch field {
		case "uploader_id":
			f.Require(v.UploaderID != uuid.Nil, field, "must be a UUID")
		case "title":
			f.Line(field, v.Title, 1, maxTitle)
		case "description":
			f.Text(field, v.Description, 0, maxDescription, "\n\r\t")
		case "duration_seconds":
			f.Require(0 <= v.DurationSeconds && v.DurationSeconds <= maxDuration, field,
				fmt.Sprintf("must lie between 0 and %d", maxDuration))
		case "published_at":
			// The times that both RFC 3339 and protobuf can express, in UTC.
			f.Require(v.PublishedAt == nil || v.PublishedAt.Year() >= 1 && v.PublishedAt.Year() <= 9999, field,
				"must lie between the years 1 and 9999")
		}
	}
	return f
}

// micros is t as the database keeps it.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

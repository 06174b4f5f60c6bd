package rest

import (
	"regexp"
	"strings"
	"time"
)

// rfc3339 is the grammar of RFC 3339, except for the ranges that time.Parse checks.
var rfc3339 = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)

// ParseTime parses a time as in RFC 3339, and reports whether text is one. time.Parse alone takes an
// hour of one digit, a comma in front of the fraction and offsets of a day and more, and so does
// [time.Time.UnmarshalText]. Both refuse the letters t and z, which RFC 3339 allows. Leap seconds are
// refused, because neither time.Time nor Postgres can hold them.
func ParseTime(text string) (t time.Time, ok bool) {
	text = strings.ToUpper(text)
	if !rfc3339.MatchString(text) {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, text)
	return t, err == nil
}

package rest

import (
	"net/http"
	"strconv"
	"strings"

	"example.com/lockstep/internal/problem"
)

// ETag is the strong entity tag of a thing at version.
func ETag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// Condition is what a write requires of the present version. The zero value requires nothing.
type Condition struct{ tags string }

const (
	anyTag = "*"
	weak   = "W/"
	blank  = " \t"
)

// IsVersion returns the condition that the version is this one. 0 requires nothing.
func IsVersion(version int64) Condition {
	if version == 0 {
		return Condition{}
	}
	return Condition{ETag(version)}
}

// IfMatch returns the condition in the If-Match headers. It reports headers that are neither * nor a
// list of entity tags (RFC 9110, section 13.1.1). A tag that no version here has is valid, and never
// matches. IfMatch also reports If-None-Match, and If-Unmodified-Since without If-Match, because
// no write here checks these conditions and the client must not believe that they were checked.
func IfMatch(r *http.Request, violations *problem.Violations) Condition {
	violations.Require(r.Header["If-None-Match"] == nil, "If-None-Match", "is not for writes: If-Match is")
	values := r.Header.Values("If-Match")
	violations.Require(r.Header["If-Unmodified-Since"] == nil || len(values) > 0, "If-Unmodified-Since", "is not for writes: If-Match is")
	tags := strings.Join(values, ", ")
	violations.Require(len(values) == 0 || tags == anyTag || areTags(tags), "If-Match", `must be versions in quotes, such as "3", or *`)
	return Condition{tags}
}

// Given reports whether the condition requires anything.
func (c Condition) Given() bool { return c.tags != "" }

// Exists reports whether the condition is only that the thing exists: If-Match: *.
func (c Condition) Exists() bool { return c.tags == anyTag }

// Accepts reports whether version is one of those that the condition names. The comparison is the
// strong one: a weak tag never matches. [Condition.Exists] accepts every version.
func (c Condition) Accepts(version int64) bool {
	want := ETag(version)
	accepts := !c.Given() || c.Exists()
	for list := c.tags; !accepts && list != ""; {
		var tag string
		tag, list, _ = cutTag(list)
		accepts = tag == want
	}
	return accepts
}

// Weak reports whether the condition names a weak tag. A proxy that compresses an answer makes the answer's
// tag weak, so the client may not know why the version does not match.
func (c Condition) Weak() bool {
	for list := c.tags; list != ""; {
		var tag string
		if tag, list, _ = cutTag(list); strings.HasPrefix(tag, weak) {
			return true
		}
	}
	return false
}

// areTags reports whether text is a list of at least one entity tag.
func areTags(text string) bool {
	some := false
	for text != "" {
		tag, rest, ok := cutTag(text)
		if !ok {
			return false
		}
		some, text = some || tag != "", rest
	}
	return some
}

// cutTag returns the first element of a list of entity tags, and the elements after it. The element is
// empty where commas follow each other, which a list may have (RFC 9110, section 5.6.1). A tag may
// contain a comma. ok is false if the element is not a tag.
func cutTag(list string) (tag, rest string, ok bool) {
	list = strings.TrimLeft(list, blank)
	after, ok := list, true
	if opaque, quoted := strings.CutPrefix(strings.TrimPrefix(list, weak), `"`); quoted {
		opaque, after, ok = strings.Cut(opaque, `"`)
		tag = list[:len(list)-len(after)]
		ok = ok && !strings.ContainsFunc(opaque, func(c rune) bool { return c <= ' ' || c == 0x7f })
	}
	between, rest, _ := strings.Cut(after, ",")
	return tag, rest, ok && strings.Trim(between, blank) == ""
}

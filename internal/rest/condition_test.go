package rest_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
)

func TestIfMatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		headers []string
		accepts []int64 // of 0 to 4
		ok      bool
	}{
		{nil, []int64{0, 1, 2, 3, 4}, true},
		{[]string{"*"}, []int64{0, 1, 2, 3, 4}, true},
		{[]string{rest.ETag(1)}, []int64{1}, true},
		{[]string{rest.ETag(1 << 62)}, nil, true},
		{[]string{`"3", "4"`}, []int64{3, 4}, true},
		{[]string{`"3"`, `"4"`}, []int64{3, 4}, true},
		{[]string{`,, "3" ,	"4",`}, []int64{3, 4}, true}, // empty elements are to be ignored
		{[]string{`"3","4"`}, []int64{3, 4}, true},
		{[]string{`W/"3"`}, nil, true},
		{[]string{`W/"3", "2"`}, []int64{2}, true},
		{[]string{`"01"`}, nil, true},
		{[]string{`"-1"`, `"99999999999999999999"`, `"é"`, `""`}, nil, true},
		{[]string{`"2,3", "4"`}, []int64{4}, true},
		{[]string{`"1,"`, `"2"`}, []int64{2}, true},
		{[]string{""}, nil, false},
		{[]string{" , "}, nil, false},
		{[]string{`3`}, nil, false},
		{[]string{`"3`}, nil, false},
		{[]string{`"3" "4"`}, nil, false},
		{[]string{`"3"x`}, nil, false},
		{[]string{`w/"3"`}, nil, false},
		{[]string{`W/`}, nil, false},
		{[]string{`W/ "3"`}, nil, false},
		{[]string{`"3 4"`}, nil, false},
		{[]string{"\"3\x7f\""}, nil, false},
		{[]string{"*", "*"}, nil, false},
		{[]string{`*, "3"`}, nil, false},
		{[]string{`"3"`, "*"}, nil, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/", nil)
		r.Header["If-Match"] = tc.headers
		var violations problem.Violations
		condition := rest.IfMatch(r, &violations)
		var accepts []int64
		for version := range int64(5) {
			if condition.Accepts(version) {
				accepts = append(accepts, version)
			}
		}
		if ok := len(violations) == 0; ok != tc.ok || ok && !slices.Equal(accepts, tc.accepts) {
			t.Errorf("%q: accepts %d, faults %v; want %d, %t", tc.headers, accepts, violations, tc.accepts, tc.ok)
		}
		if !tc.ok && len(violations) > 0 && violations[0].Field != "If-Match" {
			t.Errorf("%q: %s is blamed", tc.headers, violations[0].Field)
		}
		if condition.Given() != (tc.headers != nil) && tc.ok || condition.Exists() != slices.Equal(tc.headers, []string{"*"}) {
			t.Errorf("%q: given %t, exists %t", tc.headers, condition.Given(), condition.Exists())
		}
	}
}

func TestWeakTags(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"": false, "*": false, `"3"`: false, `"W/3", "4"`: false, `"W/"`: false, `W/"3"`: true, `"2", W/"3"`: true, `W/"x,y"`: true,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/", nil)
		if header != "" {
			r.Header.Set("If-Match", header)
		}
		var violations problem.Violations
		if got := rest.IfMatch(r, &violations).Weak(); got != want || len(violations) > 0 {
			t.Errorf("If-Match: %s is weak: %t, want %t; faults %v", header, got, want, violations)
		}
	}
}

// With If-Match, RFC 9110 says that If-Unmodified-Since is ignored.
func TestConditionsThatNoWriteChecks(t *testing.T) {
	t.Parallel()
	const since = "Sat, 29 Oct 1994 19:43:31 GMT"
	for name, tc := range map[string]struct {
		headers map[string]string
		faults  []string
	}{
		"a tag that must not be":   {map[string]string{"If-None-Match": "*"}, []string{"If-None-Match"}},
		"a time":                   {map[string]string{"If-Unmodified-Since": since}, []string{"If-Unmodified-Since"}},
		"a time next to a version": {map[string]string{"If-Unmodified-Since": since, "If-Match": `"1"`}, nil},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)
		for header, value := range tc.headers {
			r.Header.Set(header, value)
		}
		var violations problem.Violations
		rest.IfMatch(r, &violations)
		var faults []string
		for _, v := range violations {
			faults = append(faults, v.Field)
		}
		if !slices.Equal(faults, tc.faults) {
			t.Errorf("%s: faults %q, want %q", name, faults, tc.faults)
		}
	}
}

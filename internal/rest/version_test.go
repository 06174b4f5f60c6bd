package rest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
)

func TestIfMatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		headers []string
		version int64
		ok      bool
	}{
		{nil, 0, true},
		{[]string{"*"}, rest.Any, true},
		{[]string{rest.ETag(1)}, 1, true},
		{[]string{rest.ETag(1 << 62)}, 1 << 62, true},
		{[]string{""}, 0, false},
		{[]string{`"0"`}, 0, false},
		{[]string{`"-1"`}, 0, false},
		{[]string{`"01"`}, 0, false},
		{[]string{`3`}, 0, false},
		{[]string{`W/"3"`}, 0, false},
		{[]string{`"99999999999999999999"`}, 0, false},
		{[]string{`"3", "4"`}, 0, false},
		{[]string{`"3"`, `"4"`}, 0, false},
		{[]string{"*", "*"}, 0, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/", nil)
		r.Header["If-Match"] = tc.headers
		var violations problem.Violations
		version := rest.IfMatch(r, &violations)
		if ok := len(violations) == 0; ok != tc.ok || ok && version != tc.version {
			t.Errorf("%q: version %d, faults %v; want %d, %t", tc.headers, version, violations, tc.version, tc.ok)
		}
		if !tc.ok && len(violations) > 0 && violations[0].Field != "If-Match" {
			t.Errorf("%q: %s is blamed", tc.headers, violations[0].Field)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)
	r.Header.Set("If-None-Match", "*")
	var violations problem.Violations
	rest.IfMatch(r, &violations)
	if len(violations) != 1 || violations[0].Field != "If-None-Match" {
		t.Errorf("If-None-Match: %v", violations)
	}
}

package rest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
)

func TestPreferredWait(t *testing.T) {
	t.Parallel()
	const fallback, ceiling = consistency.DefaultWait, consistency.MaxWait
	var found problem.Violations
	for _, tc := range []struct {
		headers []string
		want    time.Duration
		applied string
	}{
		{nil, fallback, ""},
		{[]string{"respond-async", "handling=lenient"}, fallback, ""},
		{[]string{"wait=0"}, 0, "wait=0"},
		{[]string{`a, WAIT = "3" ; x=1, wait=9`}, 3 * time.Second, "wait=3"},
		{[]string{"wait=11"}, ceiling, "wait=10"},
		{[]string{"wait=99999999999999999999999"}, ceiling, "wait=10"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header["Prefer"] = tc.headers
		w := httptest.NewRecorder()
		got := rest.ConsistencyRequest(w, r, nil, &found).Wait
		if applied := w.Header().Get("Preference-Applied"); len(found) > 0 || got != tc.want || applied != tc.applied {
			t.Errorf("%q: %s, applied %q, %v; want %s, %q", tc.headers, got, applied, found, tc.want, tc.applied)
		}
	}
	for _, header := range []string{"wait", "wait=", "wait=-1", "wait=soon", "wait=1.5"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Prefer", header)
		var found problem.Violations
		rest.ConsistencyRequest(httptest.NewRecorder(), r, nil, &found)
		if blamed(found) != "Prefer" {
			t.Errorf("%q: %v, want Prefer blamed", header, found)
		}
	}
}

func TestConsistencyToken(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		headers      []string
		query        string
		token, field string
		ok           bool
	}{
		{nil, "", "", "Consistency-Token", true},
		{[]string{"a"}, "", "a", "Consistency-Token", true},
		{[]string{"a", "a"}, "?consistency_token=a", "a", "Consistency-Token", true},
		{nil, "?consistency_token=a", "a", "consistency_token", true},
		{[]string{""}, "", "", "Consistency-Token", false},
		{nil, "?consistency_token=", "", "consistency_token", false},
		{[]string{"a", ""}, "", "", "Consistency-Token", false},
		{[]string{"a", "b"}, "", "a,b", "Consistency-Token", true},
		{[]string{"a, b"}, "", "a, b", "Consistency-Token", true},
		{[]string{"a"}, "?consistency_token=b", "a,b", "Consistency-Token", true},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+tc.query, nil)
		r.Header["Consistency-Token"] = tc.headers
		var found problem.Violations
		q := rest.ConsistencyRequest(httptest.NewRecorder(), r, r.URL.Query(), &found)
		if !tc.ok {
			q.Token, q.TokenField = "", blamed(found)
		}
		if q.Token != tc.token || q.TokenField != tc.field || (len(found) == 0) != tc.ok {
			t.Errorf("%q %s: token %q, field %q, %v", tc.headers, tc.query, q.Token, q.TokenField, found)
		}
	}
}

// blamed is the field that found names, if it names one.
func blamed(found problem.Violations) string {
	if len(found) == 1 {
		return found[0].Field
	}
	return ""
}

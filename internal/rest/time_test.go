package rest_test

import (
	"testing"
	"time"

	"example.com/lockstep/internal/rest"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	want := time.Date(2020, 1, 1, 1, 0, 0, 0, time.UTC)
	for _, text := range []string{
		"2020-01-01T01:00:00Z", "2020-01-01t01:00:00z", "2020-01-01T01:00:00.000Z", "2020-01-01T01:00:00-00:00",
		"2020-01-01T02:30:00+01:30", "2020-01-02T00:59:00+23:59",
	} {
		if got, ok := rest.ParseTime(text); !ok || !got.Equal(want) {
			t.Errorf("%s: %s, %t; want %s", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"", "2020-01-01", "2020-01-01T01:00:00", "2020-01-01 01:00:00Z", "2020-01-01T1:00:00Z", "2020-01-01T01:00:00,5Z",
		"2020-01-01T00:00:00+24:00", "2020-01-01T00:00:00+01:60", "2020-01-01T00:00:00+0100", "2020-01-01T24:00:00Z",
		"2020-02-30T00:00:00Z", "2016-12-31T23:59:60Z", "2020-01-01T01:00:00.Z", " 2020-01-01T01:00:00Z", "2020-01-01T01:00:00Z\n",
		"٢٠٢٠-01-01T01:00:00Z", "+2020-01-01T01:00:00Z",
	} {
		if got, ok := rest.ParseTime(text); ok {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
}

package idempotency

import "testing"

// A request waits for those of its name. Another caller with the same key must not be one of
// them: the first one could hold up the second.
func TestARequestWaitsForItsOwnCallersOnly(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ principal, key, want string }{
		{"", "k", "POST /v1/videos k"}, // as releases without principals name it
		{"user:a", "k", "user:a POST /v1/videos k"},
		{"user:b", "k", "user:b POST /v1/videos k"},
	} {
		r, err := NewRequest(tc.principal, "POST /v1/videos", []string{tc.key}, nil, nil)
		if err != nil || r.Name() != tc.want {
			t.Errorf("%q: %q, %v; want %q", tc.principal, r.Name(), err, tc.want)
		}
	}
	if r, err := NewRequest("user:a", "POST /v1/videos", nil, nil, nil); err != nil || r.Name() != "" {
		t.Errorf("without a key: %q, %v", r.Name(), err)
	}
}

package connect

import (
	"net/http"
	"testing"
)

// Sent makes a call with a metadata server of that answer, and returns the headers that
// its callee gets. The test cannot be parallel.
func Sent(t *testing.T, answer http.HandlerFunc) http.Header {
	t.Helper()
	newGoogle(t, answer)
	c := newCallee(t, true)
	if err := call(t, c.dial(t, host+":443")); err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	for name, values := range c.calls()[0] {
		h[http.CanonicalHeaderKey(name)] = values
	}
	return h
}

package serve

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// plainPath decodes the characters of a path that need no encoding, such as %2D, because a path means
// the same with and without (RFC 3986, section 6.2.2.2). The router compares paths as they are
// written. plainPath stands before all that reads the path, so that the guard, the router and the log
// see the same one.
func plainPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawPath != "" { // empty if Go would encode the path in the same way
			plain := *r
			plain.URL = new(*r.URL)
			plain.URL.RawPath = decodeUnreserved(r.URL.RawPath)
			if usual := (&url.URL{Path: r.URL.Path}).EscapedPath(); plain.URL.RawPath == usual {
				plain.URL.RawPath = ""
			}
			r = &plain
		}
		next.ServeHTTP(w, r)
	})
}

// decodeUnreserved decodes the unreserved characters of an encoded path (RFC 3986, section 2.3).
func decodeUnreserved(path string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(path, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		code, err := strconv.ParseUint(after[:min(2, len(after))], 16, 8)
		if c := byte(code); err == nil && unreserved(c) {
			b.WriteByte(c)
			path = after[2:]
			continue
		}
		b.WriteByte('%')
		path = after
	}
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

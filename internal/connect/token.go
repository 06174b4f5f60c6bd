package connect

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// A token is a JWT. Its receiver verifies the signature.
type token struct {
	value   string
	expires time.Time
}

// parse reads the end of the token's lifetime. An hour from the answer would be wrong:
// the metadata server caches tokens too.
func parse(value string) (token, error) {
	value = strings.TrimSpace(value)
	parts := strings.Split(value, ".")
	if len(parts) != 3 {
		return token{}, fmt.Errorf("its answer of %d bytes is no JWT", len(value))
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return token{}, errors.New("its answer is no JWT: the claims are not in base64url")
	}
	var read struct {
		Expires int64 `json:"exp"`
	}
	if err := json.Unmarshal(claims, &read); err != nil || read.Expires <= 0 {
		return token{}, errors.New("its answer is a JWT without the claim exp")
	}
	return token{value: value, expires: time.Unix(read.Expires, 0)}, nil
}

// good reports whether the token is valid for longer than that.
func (t token) good(now time.Time, longer time.Duration) bool {
	return t.expires.Sub(now) > longer
}

func (t token) check(now time.Time) error {
	if !t.good(now, margin) {
		return fmt.Errorf("its token ends at %s, and here it is %s", t.expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

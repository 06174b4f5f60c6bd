package consistency

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"
)

func video(version int64) Token {
	return Token{AggregateType: "video", AggregateID: "0190a5d0-0000-7000-8000-000000000001", Epoch: 1, Version: version}
}

func TestTokenRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []Token{video(1), video(1 << 62), {"engagement", "u:v", 9, 3}, {"t", strings.Repeat("é", 500), 1, 1}} {
		got, err := Parse(want.String())
		if err != nil || got != want {
			t.Errorf("Parse(String(%v)) = %v, %v", want, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := video(3).String()
	cases := map[string]string{
		"empty":          "",
		"not base64":     "%%%",
		"padding":        good + "=",
		"too long":       strings.Repeat("A", MaxLength+1),
		"other format":   "Ag" + good[2:],
		"version 0":      video(0).String(),
		"no aggregate":   Token{AggregateType: "video", Epoch: 1, Version: 1}.String(),
		"trailing bytes": base64.RawURLEncoding.EncodeToString(append([]byte{format, 1, 'a', 1, 'b', 1, 1}, 9)),
		"version 1<<63":  Token{"video", "x", 1, -1 << 63}.String(),
	}
	for i := range good {
		cases["cut to "+good[:i]] = good[:i]
		flipped := []byte(good)
		flipped[i] ^= 1
		cases["flipped at "+string(flipped)] = string(flipped)
	}
	for name, s := range cases {
		if _, err := Parse(s); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error %v, want ErrMalformed", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(video(1).String())
	f.Add("AQV2aWRlbw")
	f.Add(strings.Repeat("_", 64))
	f.Fuzz(func(t *testing.T, s string) {
		token, err := Parse(s)
		if err == nil && token.String() != s {
			t.Errorf("%q parses to %v, which prints as %q", s, token, token.String())
		}
	})
}

func TestReached(t *testing.T) {
	t.Parallel()
	token := Token{AggregateType: "video", AggregateID: "a", Epoch: 2, Version: 5}
	for _, c := range []struct {
		epoch, version int64
		want           bool
	}{{2, 5, true}, {2, 6, true}, {2, 4, false}, {1, 9, false}, {3, 1, true}, {0, 0, false}} {
		if got := token.Reached(c.epoch, c.version); got != c.want {
			t.Errorf("Reached(%d, %d) = %v, want %v", c.epoch, c.version, got, c.want)
		}
	}
}

// patience ends a test that would otherwise hang.
const patience = 20 * time.Second

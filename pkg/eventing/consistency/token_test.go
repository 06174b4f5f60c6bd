package consistency

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func at(kind, id string, version int64) Position {
	return Position{AggregateType: kind, AggregateID: id, Epoch: 1, Version: version}
}

func of(positions ...Position) Token { return Token{Positions: positions} }

func video(version int64) Position {
	return at("video", "0190a5d0-0000-7000-8000-000000000001", version)
}

func TestTokenRoundTrip(t *testing.T) {
	t.Parallel()
	many := make([]Position, MaxPositions)
	for i := range many {
		many[i] = at("video", fmt.Sprintf("0190a5d0-0000-7000-8000-0000000000%02d", i), int64(i+1))
	}
	for _, want := range []Token{
		of(video(1)), of(video(1 << 62)),
		of(Position{"a", "u:v", 9, 3}, video(7)),
		of(at("t", strings.Repeat("é", 500), 1)),
		of(at("t", "0190A5D0-0000-7000-8000-000000000001", 1)), // a UUID in other letters is another id
		of(at("t", "sixteen bytes ok", 1)),
		of(many...),
		{Tenant: "acme", Positions: []Position{video(2)}},
	} {
		text := want.String()
		got, err := Parse(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-printed +parsed)\n%s", err, diff)
		}
	}
	if n := len(of(at("kinds", "0190a5d0-0000-7000-8000-000000000001", 1)).String()); n != 42 {
		t.Errorf("a token with one UUID has %d characters", n)
	}
	if n := len(of(many...).String()); n > 900 {
		t.Errorf("a token of %d videos has %d characters", len(many), n)
	}
}

// The text of a token is a contract between releases: callers send the tokens of one release to instances of
// another one. Another text needs another format byte, and a release that still reads this one.
func TestTheTextOfATokenIsAContract(t *testing.T) {
	t.Parallel()
	const other = "7d3c1f0e-5b7a-4c7e-9a64-0f2f6f3d5a11"
	second := video(3)
	second.Epoch = 1795980601810
	for text, want := range map[string]Token{
		"AgAFdmlkZW8AAZCl0AAAcACAAAAAAAAAAQGsAuewt5Y": of(video(300)),
		"AgRhY21lBG5vdGVJN2QzYzFmMGUtNWI3YS00YzdlLTlhNjQtMGYyZjZmM2Q1YTExOjAxOTBhNWQwLTAwMDAtNzAwMC04MDAwLTAw" +
			"MDAwMDAwMDAwMQECBXZpZGVvAAGQpdAAAHAAgAAAAAAAAAHS06TGojQDAAB9PB8OW3pMfppkDy9vPVoRAQSj0vD4": {
			Tenant: "acme", Positions: []Position{at("note", other+":"+second.AggregateID, 2), second, at("video", other, 4)},
		},
	} {
		if got := want.String(); got != text {
			t.Errorf("%v is written as %s, and not as %s", want, got, text)
		}
		got, err := Parse(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +parsed)\n%s", text, err, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	good := of(at("a", "u:v", 2), video(3)).String()
	body := func(b ...byte) string { return seal(append([]byte{format}, b...)) }
	tooMany := make([]Position, MaxPositions+1)
	for i := range tooMany {
		tooMany[i] = at("v", fmt.Sprintf("%03d", i), 1)
	}
	cases := map[string]string{
		"empty":            "",
		"nothing":          of().String(),
		"no position":      body(0),
		"not base64":       "%%%",
		"padding":          good + "=",
		"too long":         strings.Repeat("A", MaxLength+1),
		"other format":     "AQ" + good[2:],
		"version 0":        of(video(0)).String(),
		"no aggregate":     of(at("video", "", 1)).String(),
		"no type":          of(at("", "x", 1)).String(),
		"epoch 0":          of(Position{"video", "x", 0, 1}).String(),
		"version 1<<63":    of(at("video", "x", -1<<63)).String(),
		"not UTF-8":        of(at("video", "\xff", 1)).String(),
		"NUL":              of(at("video", "a\x00b", 1)).String(),
		"NUL in a type":    of(at("\x00", "a", 1)).String(),
		"tenant not UTF-8": Token{Tenant: "\xff", Positions: []Position{video(1)}}.String(),
		"trailing bytes":   body(0, 1, 'a', 1, 'b', 1, 1, 9),
		"out of order":     of(at("v", "b", 1), at("v", "a", 1)).String(),
		"types disordered": of(at("w", "a", 1), at("v", "a", 1)).String(),
		"twice the same":   of(at("v", "a", 1), at("v", "a", 2)).String(),
		"too many":         of(tooMany...).String(),
		"number too wide":  body(0, 1, 'a', 1, 'b', 0x81, 0, 1),
		"UUID as text":     body(append(append([]byte{0, 1, 'a', 36}, video(1).AggregateID...), 1, 1)...),
		"half a UUID":      body(0, 1, 'a', 0, 1, 2, 3),
		"type repeated":    body(0, 1, 'a', 1, 'b', 1, 1, 1, 'a', 1, 'c', 1, 1),
		"unsealed":         base64.RawURLEncoding.EncodeToString([]byte{format, 0, 1, 'a', 1, 'b', 1, 1, 0, 0, 0, 0}),
	}
	for i := range good {
		cases["cut to "+good[:i]] = good[:i]
		flipped := []byte(good)
		flipped[i] ^= 1
		cases["flipped at "+string(flipped)] = string(flipped)
	}
	for name, s := range cases {
		if got, err := Parse(s); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, error %v, want ErrMalformed", name, got, err)
		}
	}
}

// Several tokens are read as one. A client that cannot merge tokens, and a proxy that joins headers, send
// them like this.
func TestParseList(t *testing.T) {
	t.Parallel()
	text := func(tenant string, positions ...Position) string {
		return Token{Tenant: tenant, Positions: positions}.String()
	}
	one, two := text("", video(1)), text("", at("engagement", "u:v", 2))
	both := []Position{video(1), at("engagement", "u:v", 2)}
	slices.SortFunc(both, func(a, b Position) int { return strings.Compare(a.AggregateType, b.AggregateType) })
	for name, test := range map[string]struct {
		list string
		want []Position
		err  error
	}{
		"one":                {one, []Position{video(1)}, nil},
		"two":                {one + "," + two, both, nil},
		"two and spaces":     {" " + one + " ,\t" + two + " ", both, nil},
		"the same twice":     {one + "," + one, []Position{video(1)}, nil},
		"two of one video":   {one + "," + text("", video(3)), []Position{video(3)}, nil},
		"an empty one":       {one + ",," + two, nil, ErrMalformed},
		"a damaged one":      {one + "," + two[1:], nil, ErrMalformed},
		"too long":           {strings.Repeat(one+",", MaxLength/len(one)) + one, nil, ErrMalformed},
		"of several tenants": {one + "," + text("other", video(1)), nil, ErrOtherTenants},
	} {
		got, err := ParseList(test.list)
		if !errors.Is(err, test.err) || !slices.Equal(got.Positions, test.want) {
			t.Errorf("%s: %v, %v; want %v, %v", name, got.Positions, err, test.want, test.err)
		}
	}
	var many []string
	for i := range MaxPositions + 1 {
		many = append(many, text("", at("video", strconv.Itoa(i), 1)))
	}
	if _, err := ParseList(strings.Join(many, ",")); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%d videos: %v, want ErrTooLarge", len(many), err)
	}
}

// FuzzParse feeds text as it is, and as the body of a token with the right
// checksum: a fuzzer does not find one of those by itself.
func FuzzParse(f *testing.F) {
	for _, token := range []Token{of(video(1)), of(at("engagement", "u:v", 2), video(3)), {Tenant: "t", Positions: []Position{video(1)}}} {
		text := token.String()
		f.Add(text)
		raw, _ := base64.RawURLEncoding.DecodeString(text)
		f.Add(string(raw[:len(raw)-4]))
	}
	f.Add("AQV2aWRlbw")
	f.Add(strings.Repeat("_", 64))
	f.Fuzz(func(t *testing.T, s string) {
		for _, text := range []string{s, seal([]byte(s)), seal(append([]byte{format}, s...))} {
			token, err := Parse(text)
			if err != nil {
				if !errors.Is(err, ErrMalformed) {
					t.Errorf("%q: %v", text, err)
				}
				continue
			}
			if token.String() != text {
				t.Errorf("%q parses to %v, which prints as %q", text, token, token.String())
			}
			merged, err := Merge(token, token)
			if err != nil || merged.String() != text {
				t.Errorf("%q merged with itself is %q, %v", text, merged, err)
			}
			for _, p := range token.Positions {
				if p.Version < 1 || p.Epoch < 1 || p.AggregateID == "" || !p.Reached(p.Epoch, p.Version) || p.Reached(p.Epoch, p.Version-1) {
					t.Errorf("%q: position %+v", text, p)
				}
			}
		}
	})
}

func TestMerge(t *testing.T) {
	t.Parallel()
	a1, a3, b2 := at("video", "a", 1), at("video", "a", 3), at("video", "b", 2)
	restored := Position{AggregateType: "video", AggregateID: "a", Epoch: 2, Version: 1}
	for name, tc := range map[string]struct {
		tokens []Token
		want   []Position
	}{
		"none":                 {nil, nil},
		"zeros":                {[]Token{{}, {}}, nil},
		"the newer one counts": {[]Token{of(a3), of(a1)}, []Position{a3}},
		"epoch before version": {[]Token{of(a3), of(restored)}, []Position{restored}},
		"in order":             {[]Token{of(b2), of(at("a", "z", 1)), of(a1, b2)}, []Position{at("a", "z", 1), a1, b2}},
	} {
		got, err := Merge(tc.tokens...)
		if diff := cmp.Diff(tc.want, got.Positions); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
		slices.Reverse(tc.tokens)
		if again, err := Merge(tc.tokens...); again.String() != got.String() || err != nil {
			t.Errorf("%s: in reverse %v, %v; want %v", name, again, err, got)
		}
	}
	mine, yours := Token{Tenant: "me", Positions: []Position{a1}}, Token{Tenant: "you", Positions: []Position{a1}}
	if _, err := Merge(mine, yours); !errors.Is(err, ErrOtherTenants) {
		t.Errorf("of two tenants: %v", err)
	}
	if got, err := Merge(Token{}, mine, mine); err != nil || got.Tenant != "me" {
		t.Errorf("of one tenant: %+v, %v", got, err)
	}
	var full Token
	for i := range MaxPositions {
		full.Positions = append(full.Positions, at("v", fmt.Sprintf("%03d", i), 1))
	}
	if _, err := Merge(full); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	long := of(at("v", strings.Repeat("x", 1024), 1), at("w", strings.Repeat("x", 1024), 1), at("x", strings.Repeat("x", 1024), 1))
	for name, tokens := range map[string][]Token{"too many": {full, of(a1)}, "too long": {long}} {
		if _, err := Merge(tokens...); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v, want ErrTooLarge", name, err)
		}
	}
}

func TestReached(t *testing.T) {
	t.Parallel()
	p := Position{AggregateType: "video", AggregateID: "a", Epoch: 2, Version: 5}
	for _, c := range []struct {
		epoch, version int64
		want           bool
	}{{2, 5, true}, {2, 6, true}, {2, 4, false}, {1, 9, false}, {3, 1, true}, {0, 0, false}} {
		if got := p.Reached(c.epoch, c.version); got != c.want {
			t.Errorf("Reached(%d, %d) = %v, want %v", c.epoch, c.version, got, c.want)
		}
	}
}

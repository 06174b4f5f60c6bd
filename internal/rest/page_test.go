package rest

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
)

func TestTokensBeginBehindTheirItem(t *testing.T) {
	t.Parallel()
	ids := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	self := func(id uuid.UUID) uuid.UUID { return id }
	cut, next := CutPage(ids, 2, self, "f")
	if len(cut) != 2 || next == "" {
		t.Fatalf("cut to %d with token %q, want 2 and one", len(cut), next)
	}
	var violations problem.Violations
	if got := ParsePageToken(next, "f", &violations); got != ids[1] || violations != nil {
		t.Errorf("the next page begins behind %s (%v), want %s", got, violations, ids[1])
	}
	if cut, next := CutPage(ids, 3, self, "f"); len(cut) != 3 || next != "" {
		t.Errorf("the last page has %d items and token %q", len(cut), next)
	}
	if got := ParsePageToken("", "f", &violations); got != uuid.Max || violations != nil {
		t.Errorf("the first page begins behind %s (%v)", got, violations)
	}
}

// A client may ask an instance of another release for the next page.
func TestTheTextOfAPageTokenIsAContract(t *testing.T) {
	t.Parallel()
	const text = "AZCl0AAAcACAAAAAAAAAAYCTGtU"
	last := uuid.MustParse("0190a5d0-0000-7000-8000-000000000001")
	if got := PageToken(last, "f"); got != text {
		t.Errorf("the token is %s, not %s", got, text)
	}
	var violations problem.Violations
	if got := ParsePageToken(text, "f", &violations); got != last || violations != nil {
		t.Errorf("the page begins behind %s (%v), not %s", got, violations, last)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	good := PageToken(uuid.New(), "f")
	cases := map[string]string{"padding": good + "=", "longer": good + "AAAA", "not base64": "%%", "other filter": PageToken(uuid.New(), "g")}
	for i := 1; i < len(good); i++ {
		cases["cut to "+good[:i]] = good[:i]
	}
	for name, token := range cases {
		var violations problem.Violations
		ParsePageToken(token, "f", &violations)
		if len(violations) != 1 || violations[0].Field != "page_token" {
			t.Errorf("%s: %v, want a fault of page_token", name, violations)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for size, ok := range map[int]bool{-1: false, 0: false, 1: true, DefaultPageSize: true, MaxPageSize: true, MaxPageSize + 1: false} {
		var violations problem.Violations
		CheckPageSize(size, &violations)
		if (violations == nil) != ok {
			t.Errorf("%d: %v", size, violations)
		}
	}
}

func TestSizeOfAQuery(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]int{"": DefaultPageSize, "page_size=7": 7, "page_size=-1": -1} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		var violations problem.Violations
		if got := PageSize(values, &violations); got != want || violations != nil {
			t.Errorf("%q: %d, %v; want %d", query, got, violations, want)
		}
	}
	for _, text := range []string{"", "ten", "1.5", "+1", "99999999999999999999"} {
		var violations problem.Violations
		PageSize(url.Values{"page_size": {text}}, &violations)
		if len(violations) != 1 || violations[0].Field != "page_size" {
			t.Errorf("%q: %v, want page_size blamed", text, violations)
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	const half = maxPageBytes / 2
	for _, test := range []struct {
		items      []int
		size, want int
	}{
		{nil, 7, 7},
		{[]int{1, 2, 3}, 2, 2},
		{[]int{1, 2, 3}, 3, 3},
		{[]int{half, half}, 50, 50},
		{[]int{half, half, 1, 1}, 50, 2},
		{[]int{half, half, 1}, 2, 2},
		{[]int{3 * half, 1}, 50, 1},
	} {
		if got := FitPage(test.items, test.size, func(n int) int { return n }); got != test.want {
			t.Errorf("Fit(%v, %d) = %d, want %d", test.items, test.size, got, test.want)
		}
	}
}

// TestAPageIsReadAsFarAsItFits: a reader that stops as PageSpace says has the item that no longer fits, from
// which CutPage knows that a page follows.
func TestAPageIsReadAsFarAsItFits(t *testing.T) {
	t.Parallel()
	const half = maxPageBytes / 2
	for _, test := range []struct {
		items []int
		want  int
	}{
		{[]int{1, 2, 3}, 3},
		{[]int{half, half}, 2},
		{[]int{half, half, 1, 1, 1}, 3},
		{[]int{3 * half}, 1},
		{[]int{3 * half, 1, 1}, 2},
	} {
		read := 0
		var space PageSpace
		for more := true; more && read < len(test.items); read++ {
			more = space.Take(test.items[read])
		}
		if read != test.want {
			t.Errorf("%d items of %v are read, want %d", read, test.items, test.want)
		}
	}
}

// TestTextSize: no text is longer in an answer, over either protocol.
func TestTextSize(t *testing.T) {
	t.Parallel()
	texts := []string{"", "plain", "<b>&amp;</b>", "\xff\xfe", "é中😀"}
	for r := range rune(0x3000) {
		texts = append(texts, string(r))
	}
	for _, text := range texts {
		body, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		size := TextSize(text, "")
		if size < len(body)-len(`""`) || size < len(text) {
			t.Errorf("%.40q has a size of %d, but %d bytes and %d in JSON", text, size, len(text), len(body)-len(`""`))
		}
		if strings.IndexFunc(text, func(r rune) bool { return r < ' ' || strings.ContainsRune(`"\`, r) }) < 0 && size != len(body)-len(`""`) {
			t.Errorf("%.40q has a size of %d, want %d", text, size, len(body)-len(`""`))
		}
	}
}

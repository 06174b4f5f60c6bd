package rest

// Lists are cut into pages by their keys (keyset pagination). If an item is added or removed
// between the reads of two pages, no other item is repeated or left out.

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
)

const (
	// DefaultPageSize is the size of a page if the client names none.
	DefaultPageSize = 50
	// MaxPageSize is the largest size of a page. It bounds the cost of one request.
	MaxPageSize = 200
	// maxPageBytes bounds the texts of a page (see TextSize). An answer stays in memory until its client has
	// read it, and Cloud Run sends an instance of 512 MiB up to 1,000 requests at once. The other fields of
	// 200 items take some 70 kB. The whole message also fits into the 4 MiB that every gRPC client
	// accepts by default.
	maxPageBytes = 128 << 10
)

// PageSize returns the query parameter page_size, or DefaultPageSize without one. It reports a
// value that is not a number. CheckPageSize checks the bounds.
func PageSize(query url.Values, violations *problem.Violations) int {
	if !query.Has("page_size") {
		return DefaultPageSize
	}
	text := query.Get("page_size")
	size, err := strconv.Atoi(text)
	violations.Require(err == nil && text[0] != '+', "page_size", "must be a whole number")
	return size
}

// CheckPageSize reports a page_size that is not between 1 and MaxPageSize.
func CheckPageSize(size int, violations *problem.Violations) {
	violations.Require(1 <= size && size <= MaxPageSize, "page_size", fmt.Sprintf("must lie between 1 and %d", MaxPageSize))
}

// PageToken returns the token of the page that follows the item with the id last, in a list with
// the given filter. The token is bound to the text of the filter, and is opaque to clients. The
// token has a checksum and no signature, because a forged token only makes a list begin elsewhere.
func PageToken(last uuid.UUID, filter string) string {
	sum := crc32.ChecksumIEEE(append(last[:], filter...))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(last[:], sum))
}

// ParsePageToken returns the id of the item after which the page begins. Lists are newest first, so
// without a token the id is uuid.Max. ParsePageToken reports a fault of page_token if the token was
// cut off or comes with another filter.
func ParsePageToken(token, filter string, violations *problem.Violations) (last uuid.UUID) {
	if token == "" {
		return uuid.Max
	}
	b, _ := base64.RawURLEncoding.DecodeString(token)
	copy(last[:], b) // if token is not base64, or b has another length, the next line reports it
	violations.Require(PageToken(last, filter) == token, "page_token", "must be the next_page_token of a list with the same filters")
	return last
}

// TextSize returns the bytes that texts take in an answer. It takes the larger of both protocols, which is
// JSON's: some characters have six bytes there.
func TextSize(texts ...string) (bytes int) {
	for _, text := range texts {
		for _, r := range text {
			switch {
			case r == utf8.RuneError, r == '<', r == '>', r == '&', r == '\u2028', r == '\u2029', r < ' ', r == '"', r == '\\':
				bytes += len(`\u0000`)
			default:
				bytes += utf8.RuneLen(r)
			}
		}
	}
	return bytes
}

// PageSpace counts the texts of a page's items while the page is read. So a process holds no more of a page
// than an answer can have. The zero value is an empty page.
type PageSpace struct{ items, bytes int }

// Take counts an item of a TextSize. It reports whether the caller should read on. If not, the items so far
// are what FitPage needs: one that fits at least, and the item that no longer fits.
func (p *PageSpace) Take(text int) bool {
	p.items, p.bytes = p.items+1, p.bytes+text
	return p.items < 2 || p.bytes <= maxPageBytes
}

// FitPage returns size, or a smaller number of items if the texts of the first size items do not
// fit into a page. It returns 1 if not even the first item fits.
func FitPage[T any](items []T, size int, text func(T) int) int {
	sum := 0
	for i, item := range items[:min(size, len(items))] {
		if sum += text(item); sum > maxPageBytes {
			return max(i, 1)
		}
	}
	return size
}

// CutPage returns the first items, at most size, and the token of the page that follows them. The
// token is empty if no page follows. The caller reads one item more than size, so that CutPage can
// tell whether a page follows.
func CutPage[T any](items []T, size int, id func(T) uuid.UUID, filter string) (cut []T, next string) {
	if len(items) <= size {
		return items, ""
	}
	return items[:size], PageToken(id(items[size-1]), filter)
}

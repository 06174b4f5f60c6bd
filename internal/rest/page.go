package rest

// Lists are cut into pages by their keys: keyset pagination. An item that is added or
// removed between two pages neither repeats nor hides another.

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/url"
	"strconv"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
)

const (
	// DefaultPageSize is a page's size where the client does not say.
	DefaultPageSize = 50
	// MaxPageSize bounds the cost of one request.
	MaxPageSize = 200
	// maxPageBytes of text, with the message around it, fit into a message that every
	// client of gRPC takes: 4 MiB by default.
	maxPageBytes = 3 << 20
)

// PageSize is the query parameter page_size, or DefaultPageSize without one. It reports a value
// that is no number; CheckPageSize checks the bounds.
func PageSize(query url.Values, violations *problem.Violations) int {
	if !query.Has("page_size") {
		return DefaultPageSize
	}
	size, err := strconv.Atoi(query.Get("page_size"))
	violations.Require(err == nil, "page_size", "must be a whole number")
	return size
}

// CheckPageSize reports a fault of page_size outside of 1 to MaxPageSize.
func CheckPageSize(size int, violations *problem.Violations) {
	violations.Require(1 <= size && size <= MaxPageSize, "page_size", fmt.Sprintf("must lie between 1 and %d", MaxPageSize))
}

// PageToken names the page behind last in a list with a filter; the token is bound to the
// filter's text. To clients it is opaque. It is no signature: a forged token begins
// elsewhere.
func PageToken(last uuid.UUID, filter string) string {
	sum := crc32.ChecksumIEEE(append(last[:], filter...))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(last[:], sum))
}

// ParsePageToken returns the id that the page begins behind, newest first: without a token
// uuid.Max. It reports a fault of page_token if the token was cut off or comes with another
// filter.
func ParsePageToken(token, filter string, violations *problem.Violations) (last uuid.UUID) {
	if token == "" {
		return uuid.Max
	}
	if b, err := base64.RawURLEncoding.DecodeString(token); err == nil {
		copy(last[:], b) // of another length, it does not equal the token of last
	}
	violations.Require(PageToken(last, filter) == token, "page_token", "must be the next_page_token of a list with the same filters")
	return last
}

// FitPage returns how many of the first size items, but at least one, fit into a page by
// the length of their texts.
func FitPage[T any](items []T, size int, text func(T) int) int {
	sum := 0
	for i, item := range items[:min(size, len(items))] {
		if sum += text(item); sum > maxPageBytes {
			return max(i, 1)
		}
	}
	return size
}

// CutPage returns the first size items, and the token of the page behind them, which is
// empty when there is none. The caller reads one item more than size.
func CutPage[T any](items []T, size int, id func(T) uuid.UUID, filter string) (cut []T, next string) {
	if len(items) <= size {
		return items, ""
	}
	return items[:size], PageToken(id(items[size-1]), filter)
}

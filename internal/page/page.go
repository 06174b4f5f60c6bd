// Package page cuts lists into pages by id: keyset pagination. An item that comes
// or goes between two pages neither repeats nor hides another.
package page

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
	// DefaultSize is a page's size where the client does not say.
	DefaultSize = 50
	// MaxSize bounds what one request may cost.
	MaxSize = 200
)

// Size is the query parameter page_size, or DefaultSize without one. It blames what is
// no number; the bounds are CheckSize's.
func Size(query url.Values, bad *problem.Faults) int {
	if !query.Has("page_size") {
		return DefaultSize
	}
	size, err := strconv.Atoi(query.Get("page_size"))
	bad.Unless(err == nil, "page_size", "must be a whole number")
	return size
}

// CheckSize blames page_size outside of 1 to MaxSize.
func CheckSize(size int, bad *problem.Faults) {
	bad.Unless(1 <= size && size <= MaxSize, "page_size", fmt.Sprintf("must lie between 1 and %d", MaxSize))
}

// Token names the page behind last in a list with a filter, whose text it is bound
// to. To clients it is opaque. It is no signature: who forges one begins elsewhere.
func Token(last uuid.UUID, filter string) string {
	sum := crc32.ChecksumIEEE(append(last[:], filter...))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(last[:], sum))
}

// Parse returns the id that the page begins behind, newest first: without a token
// one that is above all others. It blames page_token where the token was cut off or
// comes with another filter.
func Parse(token, filter string, bad *problem.Faults) uuid.UUID {
	if token == "" {
		return uuid.Max
	}
	var last uuid.UUID
	if b, err := base64.RawURLEncoding.DecodeString(token); err == nil {
		copy(last[:], b)
	}
	bad.Unless(Token(last, filter) == token, "page_token", "must be the next_page_token of a list with the same filters")
	return last
}

// Cut returns the first size items, and the token of the page behind them, which is
// empty when there is none. Whoever reads the items asks for one more than size.
func Cut[T any](items []T, size int, id func(T) uuid.UUID, filter string) (cut []T, next string) {
	if len(items) <= size {
		return items, ""
	}
	return items[:size], Token(id(items[size-1]), filter)
}

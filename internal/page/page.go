// Package page cuts lists into pages by their keys: keyset pagination. An item that is
// added or removed between two pages neither repeats nor hides another.
package page

import (
	"bytes"
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
	// MaxSize bounds the cost of one request.
	MaxSize = 200
	// maxBytes of text, with the message around it, fit into a message that every
	// client of gRPC takes: 4 MiB by default.
	maxBytes = 3 << 20
)

// Size is the query parameter page_size, or DefaultSize without one. It reports a value
// that is no number; CheckSize checks the bounds.
func Size(query url.Values, bad *problem.Faults) int {
	if !query.Has("page_size") {
		return DefaultSize
	}
	size, err := strconv.Atoi(query.Get("page_size"))
	bad.Unless(err == nil, "page_size", "must be a whole number")
	return size
}

// CheckSize reports a fault of page_size outside of 1 to MaxSize.
func CheckSize(size int, bad *problem.Faults) {
	bad.Unless(1 <= size && size <= MaxSize, "page_size", fmt.Sprintf("must lie between 1 and %d", MaxSize))
}

// A Key is the key that a list is ordered by: the id of an item, or two of them.
type Key interface{ uuid.UUID | [2]uuid.UUID }

// Token names the page behind last in a list with a filter; the token is bound to the
// filter's text. To clients it is opaque. It is no signature: a forged token begins
// elsewhere.
func Token[K Key](last K, filter string) string {
	key := encode(last)
	sum := crc32.ChecksumIEEE(append(key, filter...))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(key, sum))
}

// Parse returns the key that the page begins behind, newest first: without a token one
// that is above all others. It reports a fault of page_token if the token was cut off
// or comes with another filter.
func Parse[K Key](token, filter string, bad *problem.Faults) (last K) {
	if token == "" {
		decode(bytes.Repeat([]byte{0xff}, binary.Size(last)), &last)
		return last
	}
	if b, err := base64.RawURLEncoding.DecodeString(token); err == nil {
		decode(b, &last)
	}
	bad.Unless(Token(last, filter) == token, "page_token", "must be the next_page_token of a list with the same filters")
	return last
}

// Fit returns how many of the first size items, but at least one, fit into a page by
// the length of their texts.
func Fit[T any](items []T, size int, text func(T) int) int {
	sum := 0
	for i, item := range items[:min(size, len(items))] {
		if sum += text(item); sum > maxBytes {
			return max(i, 1)
		}
	}
	return size
}

// Cut returns the first size items, and the token of the page behind them, which is
// empty when there is none. The caller reads one item more than size.
func Cut[T any, K Key](items []T, size int, key func(T) K, filter string) (cut []T, next string) {
	if len(items) <= size {
		return items, ""
	}
	return items[:size], Token(key(items[size-1]), filter)
}

func encode[K Key](key K) []byte {
	b, _ := binary.Append(nil, binary.BigEndian, key) // an array of bytes has an encoding
	return b
}

// decode leaves last unchanged if b is too short; Parse detects that.
func decode[K Key](b []byte, last *K) { _, _ = binary.Decode(b, binary.BigEndian, last) }

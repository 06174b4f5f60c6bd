package consistency

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"unicode/utf8"

	"example.com/lockstep/pkg/eventing"
)

// Token names a state of one aggregate that a reader has a right to see: the
// version that a write made. To callers it is opaque text.
type Token struct {
	AggregateType string
	AggregateID   string
	// Epoch and Version are compared in that order.
	Epoch   int64
	Version int64
}

// ErrMalformed is what Parse's errors wrap.
var ErrMalformed = errors.New("malformed consistency token")

// MaxLength is the longest token text, in bytes.
const MaxLength = 2048

// format is the first byte of every token, so that a later format can be told
// from this one.
const format = 1

// String is the token as callers carry it: URL-safe, without padding.
func (t Token) String() string {
	b := []byte{format}
	b = appendText(b, t.AggregateType)
	b = appendText(b, t.AggregateID)
	b = binary.AppendUvarint(b, uint64(t.Epoch))
	b = binary.AppendUvarint(b, uint64(t.Version))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return base64.RawURLEncoding.EncodeToString(b)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Parse reads a token. The checksum catches truncation and typing errors; it is
// no signature: a caller can forge a token, and gets no more than a bounded wait
// for it.
func Parse(s string) (Token, error) {
	if len(s) > MaxLength {
		return Token{}, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(s), MaxLength)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil {
		return Token{}, fmt.Errorf("%w: not base64url", ErrMalformed)
	}
	if len(b) < 5 || b[0] != format {
		return Token{}, fmt.Errorf("%w: unknown format", ErrMalformed)
	}
	body, sum := b[:len(b)-4], b[len(b)-4:]
	if crc32.ChecksumIEEE(body) != binary.BigEndian.Uint32(sum) {
		return Token{}, fmt.Errorf("%w: checksum does not match, it may be cut off", ErrMalformed)
	}
	r := reader{b: body[1:]}
	t := Token{AggregateType: r.text(), AggregateID: r.text(), Epoch: r.number(), Version: r.number()}
	if r.failed || len(r.b) > 0 || t.AggregateType == "" || t.AggregateID == "" || t.Epoch < 1 || t.Version < 1 {
		return Token{}, fmt.Errorf("%w: bad content", ErrMalformed)
	}
	return t, nil
}

// reader takes fields off the front of b. After a failure it yields zeros.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) number() int64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || int64(n) < 0 {
		r.failed, r.b = true, nil
		return 0
	}
	r.b = r.b[size:]
	return int64(n)
}

func (r *reader) text() string {
	n := r.number()
	if n > int64(len(r.b)) || !utf8.Valid(r.b[:n]) {
		r.failed, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

// Key identifies the token's aggregate; it is the eventing.Event.Key of the
// events that bring a copy there.
func (t Token) Key() string { return eventing.Key(t.AggregateType, t.AggregateID) }

// Reached reports whether a copy at (epoch, version) is as fresh as the token.
func (t Token) Reached(epoch, version int64) bool {
	return epoch > t.Epoch || epoch == t.Epoch && version >= t.Version
}

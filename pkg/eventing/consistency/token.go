package consistency

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// Position is a version of one aggregate.
type Position struct {
	AggregateType string `json:"aggregate_type"`
	AggregateID   string `json:"aggregate_id"`
	// Positions are compared by Epoch first, and then by Version.
	Epoch   int64 `json:"epoch"`
	Version int64 `json:"version"`
}

// PositionOf returns the position of a projection after e.
func PositionOf(e eventing.Event) Position {
	return Position{AggregateType: e.AggregateType, AggregateID: e.AggregateID, Epoch: e.Epoch, Version: e.Version}
}

// Unknown returns a Position of p's aggregate without an epoch and a version. It stands for a
// position that the caller does not know.
func (p Position) Unknown() Position {
	return Position{AggregateType: p.AggregateType, AggregateID: p.AggregateID}
}

// Key identifies the aggregate. It equals eventing.Event.Key of the aggregate's events.
func (p Position) Key() string { return eventing.Key(p.AggregateType, p.AggregateID) }

// Reached reports whether a projection at (epoch, version) is as fresh as p. A projection at a
// later epoch is as fresh, whatever its version. A later epoch means that the owner was restored,
// and the writes that the restore lost will not come back.
func (p Position) Reached(epoch, version int64) bool {
	return epoch > p.Epoch || epoch == p.Epoch && version >= p.Version
}

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.AggregateType, q.AggregateType), cmp.Compare(p.AggregateID, q.AggregateID))
}

// Token names versions of aggregates, at most one version of each aggregate. A read with the token
// must show each aggregate at that version or a later one. To callers a token is opaque text. The
// zero Token demands nothing, and its text is empty.
type Token struct {
	// Tenant owns the aggregates. Empty means eventing.DefaultTenant. The token's text leaves the
	// default tenant out, so that tokens of a system without tenants are shorter, and Parse then
	// leaves Tenant empty.
	Tenant string
	// Positions are in order of type and id, as Merge leaves them.
	Positions []Position
}

// The errors that Parse and Merge wrap.
var (
	ErrMalformed    = errors.New("malformed consistency token")
	ErrTooLarge     = errors.New("the tokens name too many aggregates")
	ErrOtherTenants = errors.New("the tokens are of several tenants")
)

const (
	// MaxLength is the longest token text, in bytes.
	MaxLength = 4096
	// MaxPositions is how many aggregates a token may name. Each can cost the service of the reader
	// a call to the owner.
	MaxPositions = 32
)

// format is the first byte of every token, so that a later format can be told
// from this one.
const format = 2

// Merge returns one token that demands as much as all of tokens together. If the result is beyond
// the limits, the error is ErrTooLarge. The caller must then decide which positions to leave out.
func Merge(tokens ...Token) (Token, error) {
	var merged Token
	for _, t := range tokens {
		switch {
		case len(t.Positions) == 0:
			continue
		case len(merged.Positions) > 0 && !sameTenant(t.Tenant, merged.Tenant):
			return Token{}, ErrOtherTenants
		}
		merged.Tenant = t.Tenant
		merged.Positions = append(merged.Positions, t.Positions...)
	}
	// The furthest position of each aggregate comes first. The other positions of the aggregate are
	// dropped.
	slices.SortFunc(merged.Positions, func(p, q Position) int {
		return cmp.Or(p.compare(q), cmp.Compare(q.Epoch, p.Epoch), cmp.Compare(q.Version, p.Version))
	})
	merged.Positions = slices.CompactFunc(merged.Positions, func(p, q Position) bool { return p.compare(q) == 0 })
	if len(merged.Positions) > MaxPositions || len(merged.String()) > MaxLength {
		return Token{}, fmt.Errorf("%w: at most %d, in %d bytes", ErrTooLarge, MaxPositions, MaxLength)
	}
	return merged, nil
}

// String returns the token as callers carry it, in URL-safe base64 without padding. In the first
// epoch the token of a video has 42 characters, and each further video adds some 27. An epoch that a
// restore began takes some 5 more for each video.
func (t Token) String() string {
	if len(t.Positions) == 0 {
		return ""
	}
	tenant := t.Tenant
	if tenant == eventing.DefaultTenant {
		tenant = ""
	}
	b := appendText([]byte{format}, tenant)
	for i, p := range t.Positions {
		// A type is written only at the first of its positions. An empty type means the type of the
		// previous position.
		if i > 0 && p.AggregateType == t.Positions[i-1].AggregateType {
			b = appendText(b, "")
		} else {
			b = appendText(b, p.AggregateType)
		}
		b = appendID(b, p.AggregateID)
		b = binary.AppendUvarint(b, uint64(p.Epoch))
		b = binary.AppendUvarint(b, uint64(p.Version))
	}
	return seal(b)
}

func sameTenant(a, b string) bool {
	return cmp.Or(a, eventing.DefaultTenant) == cmp.Or(b, eventing.DefaultTenant)
}

func seal(b []byte) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendID writes a UUID as a length of 0, which no id has, and then the UUID's 16 bytes. It writes
// any other id as text.
func appendID(b []byte, s string) []byte {
	if id, err := uuid.Parse(s); err == nil && id.String() == s {
		return append(append(b, 0), id[:]...)
	}
	return appendText(b, s)
}

// Parse reads a token. The checksum catches truncation and typing errors. The checksum is no
// signature, so a caller can forge a token. A forged token gets no more than a bounded wait.
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
	t := Token{Tenant: r.text()}
	for len(r.b) > 0 && len(t.Positions) < MaxPositions {
		t.Positions = append(t.Positions, r.position(t.Positions))
	}
	// A text in another order or in another notation than String writes would be a second text for
	// the same token. A text with positions beyond the limit fails here too, because t lacks these
	// positions.
	if r.failed || len(t.Positions) == 0 || t.String() != s {
		return Token{}, fmt.Errorf("%w: bad content", ErrMalformed)
	}
	return t, nil
}

// ParseList reads one token, or several that are separated by commas, and merges them. Spaces around a
// token are ignored. All of s may have MaxLength bytes. The error is ErrMalformed, or an error of
// Merge.
func ParseList(s string) (Token, error) {
	if len(s) > MaxLength {
		return Token{}, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(s), MaxLength)
	}
	var all []Token
	for text := range strings.SplitSeq(s, ",") {
		t, err := Parse(strings.TrimSpace(text))
		if err != nil {
			return Token{}, err
		}
		all = append(all, t)
	}
	return Merge(all...)
}

// reader takes fields off the front of b. After a failure it yields zeros.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) position(before []Position) Position {
	p := Position{AggregateType: r.text(), AggregateID: r.id(), Epoch: r.number(), Version: r.number()}
	if n := len(before); n > 0 {
		p.AggregateType = cmp.Or(p.AggregateType, before[n-1].AggregateType)
		r.failed = r.failed || before[n-1].compare(p) >= 0
	}
	r.failed = r.failed || p.AggregateType == "" || p.AggregateID == "" || p.Epoch < 1 || p.Version < 1
	return p
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

func (r *reader) text() string { return r.utf8(r.number()) }

func (r *reader) id() string {
	if n := r.number(); n != 0 {
		return r.utf8(n)
	}
	id, _ := uuid.FromBytes(r.bytes(int64(len(uuid.Nil)))) // if there are too few bytes, r has failed
	return id.String()
}

func (r *reader) utf8(n int64) string {
	s := string(r.bytes(n))
	// No event has a text that Postgres refuses. Such a text must not get into the query for
	// positions, because the query would fail for all readers.
	r.failed = r.failed || eventing.Storable(s) != s
	return s
}

func (r *reader) bytes(n int64) []byte {
	if n > int64(len(r.b)) {
		r.failed, r.b = true, nil
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

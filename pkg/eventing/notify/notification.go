package notify

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
)

// maxTold is the largest number of keys in one notification: its text has 8,000
// bytes at most, and each key takes six.
const maxTold = 1000

// Bulletin is a set of keys that were rung for. It holds their hashes, so it
// may contain a key too many, never one too few. The zero Bulletin is empty.
type Bulletin struct {
	hashes     map[uint32]struct{}
	everything bool
}

// Mentions reports whether key was rung for.
func (b Bulletin) Mentions(key string) bool {
	_, ok := b.hashes[hash(key)]
	return ok || b.everything
}

func (b *Bulletin) add(key string) {
	if b.hashes == nil {
		b.hashes = map[uint32]struct{}{}
	}
	if b.hashes[hash(key)] = struct{}{}; len(b.hashes) > maxTold {
		*b = Bulletin{everything: true}
	}
}

func (b Bulletin) String() string {
	if b.everything {
		return "*"
	}
	raw := make([]byte, 0, 4*len(b.hashes))
	for h := range b.hashes {
		raw = binary.BigEndian.AppendUint32(raw, h)
	}
	return base64.RawStdEncoding.EncodeToString(raw)
}

// parse treats an unreadable text as everything: an unnecessary poll costs
// little.
func parse(text string) Bulletin {
	raw, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		return Bulletin{everything: true}
	}
	b := Bulletin{hashes: make(map[uint32]struct{}, len(raw)/4)}
	for ; len(raw) > 0; raw = raw[4:] {
		b.hashes[binary.BigEndian.Uint32(raw)] = struct{}{}
	}
	return b
}

func hash(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return h.Sum32()
}

package notify

import (
	"encoding/base64"
	"encoding/binary"
	"hash/fnv"
)

// maxKeys is the largest number of keys in one notification. The text of a notification has 8,000
// bytes at most, and each key takes six.
const maxKeys = 1000

// Notification is a set of published keys. It holds the hashes of the keys. So it may mention a key
// that was not published, but it always mentions every key that was. The zero Notification is
// empty.
type Notification struct {
	hashes     map[uint32]struct{}
	everything bool
}

// Mentions reports whether key may have been published. It returns true for each key that was
// published, and for any other key with the same hash.
func (n Notification) Mentions(key string) bool {
	_, ok := n.hashes[hash(key)]
	return ok || n.everything
}

func (n *Notification) add(key string) {
	if n.hashes == nil {
		n.hashes = map[uint32]struct{}{}
	}
	if n.hashes[hash(key)] = struct{}{}; len(n.hashes) > maxKeys {
		*n = Notification{everything: true}
	}
}

func (n Notification) String() string {
	if n.everything {
		return "*"
	}
	raw := make([]byte, 0, 4*len(n.hashes))
	for h := range n.hashes {
		raw = binary.BigEndian.AppendUint32(raw, h)
	}
	return base64.RawStdEncoding.EncodeToString(raw)
}

// parse reads the text that String has written. If the text is unreadable, parse returns a
// Notification of every key, because an unnecessary poll costs the receiver little.
func parse(text string) Notification {
	raw, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		return Notification{everything: true}
	}
	n := Notification{hashes: make(map[uint32]struct{}, len(raw)/4)}
	for ; len(raw) > 0; raw = raw[4:] {
		n.hashes[binary.BigEndian.Uint32(raw)] = struct{}{}
	}
	return n
}

func hash(key string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return h.Sum32()
}

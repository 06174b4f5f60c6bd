package rest

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
)

// FuzzPageToken reads any text, and any bytes with the right checksum, as a token of a list
// by one id and by two. It accepts a list's own tokens only, in their only spelling.
func FuzzPageToken(f *testing.F) {
	f.Add(PageToken(uuid.Max, "f"), []byte{}, "f")
	f.Add("AAAA", make([]byte, 16), "")
	f.Add("", make([]byte, 32), "uploader")
	f.Fuzz(func(t *testing.T, text string, key []byte, filter string) {
		sum := crc32.ChecksumIEEE(append(slices.Clip(key), filter...))
		sealed := base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(slices.Clip(key), sum))
		for _, token := range []string{text, sealed} {
			checkPageToken(t, token, filter)
		}
	})
}

func checkPageToken(t *testing.T, token, filter string) {
	t.Helper()
	var found problem.Violations
	last := ParsePageToken(token, filter, &found)
	b, err := base64.RawURLEncoding.DecodeString(token)
	whole := err == nil && len(b) == binary.Size(last)+crc32.Size
	switch {
	case len(found) == 0 && token != "" && (!whole || PageToken(last, filter) != token):
		t.Errorf("%q of the filter %q is accepted as %v", token, filter, last)
	case len(found) > 1 || len(found) == 1 && found[0].Field != "page_token":
		t.Errorf("%q: %v", token, found)
	}
}

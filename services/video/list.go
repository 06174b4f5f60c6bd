package video

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/google/uuid"
)

const (
	defaultPageSize = 50
	maxPageSize     = 200
)

// List returns up to size (1 to 200) videos, newest first, and a token for the
// page behind them, which is empty on the last. Pages are cut by id, so a video
// that comes or goes between two of them neither repeats nor hides another.
func (s *Service) List(ctx context.Context, f Filter, size int, token string) (page []Video, next string, err error) {
	var bad faults
	bad.unless(1 <= size && size <= maxPageSize, "page_size", fmt.Sprintf("must lie between 1 and %d", maxPageSize))
	before, ok := f.parse(token)
	bad.unless(ok, "page_token", "must be the next_page_token of a list with the same filters")
	if err := bad.err(); err != nil {
		return nil, "", err
	}
	// One more than asked for tells whether there is another page.
	page, err = selectPage(ctx, s.db, f, before, size+1)
	if err != nil {
		return nil, "", fmt.Errorf("list videos: %w", err)
	}
	if len(page) > size {
		page, next = page[:size], f.token(page[size-1].ID)
	}
	return page, next, nil
}

// token is the last id of a page and a checksum over it and the filter, which
// finds a token that was cut off or comes with another filter.
func (f Filter) token(last uuid.UUID) string {
	sum := crc32.ChecksumIEEE(fmt.Appendf(last[:], "%s %t", f.UploaderID, f.IncludeDeleted))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(last[:], sum))
}

func (f Filter) parse(token string) (last uuid.UUID, ok bool) {
	if token == "" {
		return uuid.Max, true
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(b) <= len(last) {
		return last, false
	}
	copy(last[:], b)
	return last, f.token(last) == token
}

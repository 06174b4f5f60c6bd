package resource

import (
	"encoding/base64"
	"slices"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// PageRequest is a request for one page of a list.
type PageRequest interface {
	GetPageSize() int32
	GetPageToken() string
}

// Page returns one page of names in sorted order, and the token for the next page. The page begins
// after the last name of the previous page, which returned the token in the request.
func Page(names []string, req PageRequest) (some []string, next string, err error) {
	if req.GetPageSize() < 0 {
		return nil, "", Invalid("page_size", "%d is negative", req.GetPageSize())
	}
	after, err := base64.RawURLEncoding.DecodeString(req.GetPageToken())
	if err != nil {
		return nil, "", Invalid("page_token", "%q is none of this server's", req.GetPageToken())
	}
	slices.Sort(names)
	first, found := slices.BinarySearch(names, string(after))
	if found {
		first++
	}
	size := min(int(req.GetPageSize()), maxPage)
	if size == 0 {
		size = defaultPage
	}
	rest := names[first:]
	if len(rest) <= size {
		return rest, "", nil
	}
	return rest[:size], base64.RawURLEncoding.EncodeToString([]byte(rest[size-1])), nil
}

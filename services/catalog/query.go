package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

const (
	// defaultWait is far above an event's usual delay, and short for a person.
	defaultWait = 2 * time.Second
	// maxWait bounds how long a forged token holds a connection.
	maxWait = 10 * time.Second

	defaultPageSize, maxPageSize = 50, 200
	maxTitleSearch               = 200 // characters
)

// Read says how fresh an answer must be. The zero Read takes what the
// projection has.
type Read struct {
	token consistency.Token
	video uuid.UUID
	wait  time.Duration
}

// NewRead demands token of the video that it names, and waits for the projection
// (at most maxWait) before the owner is asked. field is what an error blames.
func NewRead(token, field string, wait time.Duration) (Read, error) {
	t, err := consistency.Parse(token)
	if err != nil {
		return Read{}, problem.Invalid(field, err.Error())
	}
	if t.AggregateType != aggregateType {
		return Read{}, problem.Invalid(field, "is a token of something else than a video")
	}
	id, err := parseID(t.AggregateID)
	if err != nil {
		return Read{}, problem.Invalid(field, "names no video")
	}
	return Read{token: t, video: id, wait: min(wait, maxWait)}, nil
}

func (r Read) reached(v Video) bool { return r.token.Reached(v.Epoch, v.Version) }

// budget is the wait within ctx's deadline, of which half is kept for asking the
// owner: a wait that used up all of it would help nobody.
func (r Read) budget(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(r.wait, time.Until(deadline)/2)
	}
	return r.wait
}

// Query selects videos.
type Query struct {
	// UploaderID is a UUID, or empty for every uploader.
	UploaderID string
	// Title is contained in the title, whatever the case.
	Title string
	// PageSize is at most 200; 0 means 50.
	PageSize int
	// PageToken is the Next of the page before, with the same filters.
	PageToken string
}

// Page is one page of videos. Next is empty on the last one.
type Page struct {
	Videos []Video `json:"videos"`
	Next   string  `json:"next_page_token"`
	Source Source  `json:"source"`
}

// check sets what is not given, and returns the last video of the page before.
func (q *Query) check() (after *uuid.UUID, err error) {
	switch {
	case q.PageSize < 0 || q.PageSize > maxPageSize:
		return nil, problem.Invalid("page_size", fmt.Sprintf("must lie between 1 and %d", maxPageSize))
	case !utf8.ValidString(q.Title):
		return nil, problem.Invalid("q", "must be valid UTF-8")
	case strings.ContainsFunc(q.Title, unicode.IsControl):
		return nil, problem.Invalid("q", "must not contain control characters")
	case utf8.RuneCountInString(q.Title) > maxTitleSearch:
		return nil, problem.Invalid("q", fmt.Sprintf("must have at most %d characters", maxTitleSearch))
	case q.PageSize == 0:
		q.PageSize = defaultPageSize
	}
	if q.UploaderID != "" {
		if _, err := parseID(q.UploaderID); err != nil {
			return nil, problem.Invalid("uploader_id", err.Error())
		}
	}
	if q.PageToken == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(q.PageToken)
	if err != nil || len(raw) < len(uuid.Nil) {
		return nil, problem.Invalid("page_token", "is not a page token")
	}
	last := uuid.UUID(raw[:len(uuid.Nil)])
	if q.tokenBehind(last) != q.PageToken {
		return nil, problem.Invalid("page_token", "is cut off, or of a list with other filters")
	}
	return &last, nil
}

// page cuts videos to size; one more than the page says that another follows.
func (q *Query) page(videos []Video, source Source) Page {
	if len(videos) <= q.PageSize {
		return Page{Videos: videos, Source: source}
	}
	return Page{Videos: videos[:q.PageSize], Next: q.tokenBehind(videos[q.PageSize-1].ID), Source: source}
}

// tokenBehind is where the page after last begins: the id and a hash that binds
// it to the filters. It is no signature: a forged one only begins elsewhere.
func (q *Query) tokenBehind(last uuid.UUID) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s", last, q.UploaderID, q.Title))
	return base64.RawURLEncoding.EncodeToString(append(last[:], sum[:8]...))
}

// parseID takes the canonical form only, in either case: uuid.Parse knows three
// more, and one video would have several addresses.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != len(uuid.Nil.String()) {
		return uuid.Nil, fmt.Errorf("%.40q is not a UUID", s)
	}
	return id, nil
}

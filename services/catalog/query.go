package catalog

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/page"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

const (
	// defaultWait is far above an event's usual delay, and short for a person.
	defaultWait = 2 * time.Second
	// maxWait bounds how long a forged token holds a connection.
	maxWait = 10 * time.Second

	maxTitleSearch = 200 // characters
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
func (q *Query) check() (before uuid.UUID, err error) {
	var bad problem.Faults
	q.PageSize = cmp.Or(q.PageSize, page.DefaultSize)
	page.CheckSize(q.PageSize, &bad)
	bad.Text("q", q.Title, 0, maxTitleSearch, "")
	if q.UploaderID != "" {
		bad.UUID("uploader_id", q.UploaderID)
	}
	return page.Parse(q.PageToken, q.filter(), &bad), bad.Err()
}

// filter is what a page token is bound to.
func (q *Query) filter() string { return q.UploaderID + " " + q.Title }

// parseID takes the canonical form only, in either case: uuid.Parse knows three
// more, and one video would have several addresses.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != len(uuid.Nil.String()) {
		return uuid.Nil, fmt.Errorf("%.40q is not a UUID", s)
	}
	return id, nil
}

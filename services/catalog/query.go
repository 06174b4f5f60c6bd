package catalog

import (
	"cmp"

	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
)

const maxTitleSearch = 200 // characters

// Query selects videos.
type Query struct {
	// UploaderID is a UUID, or empty for every uploader.
	UploaderID string
	// Title is a text that the titles contain, in upper or lower case. If it is empty, every title counts.
	// Code points are compared, because titles are stored as they were sent, in any normalization form.
	Title string
	// PageSize is at most 200; 0 means 50. A page has fewer videos if they are long: see rest.FitPage.
	PageSize int
	// PageToken is the field Next of the previous page, with the same filters.
	PageToken string
	// Caller is the reader. The page tokens of the answer are valid for this caller only.
	Caller auth.Principal
	// Found are the violations that the protocol has found in the request. List reports them together
	// with the violations of the rules.
	Found problem.Violations
}

// Page is one page of videos. Next is empty on the last page. Stale lists the positions of the token
// that the page lacks. It is empty unless the reader has allowed such a page.
type Page struct {
	Videos []Video                      `json:"videos"`
	Next   string                       `json:"next_page_token"`
	Source Source                       `json:"source"`
	Stale  []consistency.StaleAggregate `json:"stale,omitempty"`
}

// check validates q and sets its defaults. before is the last video of the previous page.
func (q *Query) check() (before uuid.UUID, err error) {
	var bad problem.Violations
	bad.Merge(q.Found)
	q.PageSize = cmp.Or(q.PageSize, rest.DefaultPageSize)
	rest.CheckPageSize(q.PageSize, &bad)
	bad.Line("q", q.Title, 0, maxTitleSearch)
	if q.UploaderID != "" {
		q.UploaderID = bad.UUID("uploader_id", q.UploaderID).String() // one form, so that page tokens do not depend on the case
	}
	return rest.ParsePageToken(q.PageToken, q.filter(), &bad), bad.Err()
}

// text is the length of v's text in an answer, in bytes.
func (v Video) text() int { return rest.TextSize(v.Title, v.Description) }

// filter is the part of the query that a page token is bound to.
func (q *Query) filter() string { return q.Caller.Scope() + q.UploaderID + " " + q.Title }

// VideoRequirement returns the freshness that q requires. Of the positions in q's token, the
// positions of videos count.
// The positions of engagements count, too, because the counters of a video are sums over engagements.
func VideoRequirement(q consistency.Request) (consistency.Requirement, error) {
	required, err := q.Requirement(videoType, isCanonical)
	required, err = withEngagements(required, err)
	return required, problemOf(err)
}

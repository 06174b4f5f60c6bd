package catalog

import (
	"cmp"
	"context"

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

// filter is the part of the query that a page token is bound to.
func (q *Query) filter() string { return q.Caller.Scope() + q.UploaderID + " " + q.Title }

// List returns one page of the videos that are not deleted, newest first. It waits until the
// projections have the versions that required names. If a version does not arrive in time, List
// fetches the video from the owner. One snapshot is used for the page and for the check that the
// projection has the versions of the videos.
func (s *Service) List(ctx context.Context, q Query, required consistency.Requirement) (Page, error) {
	refuseFullyConsistent(required, &q.Found)
	before, err := q.check()
	if err != nil {
		return Page{}, err
	}
	page := videoPage{service: s, query: q, before: before}
	counted := s.counted(q.Caller, required, nil)
	outcome, stale, err := s.projector.videos.List(ctx, counted, s.writer, required.OfType(videoType), &page)
	if err != nil {
		return Page{}, problemOf(err)
	}
	videos, next := rest.CutPage(page.videos, rest.FitPage(page.videos, q.PageSize, Video.text),
		func(v Video) uuid.UUID { return v.ID }, q.filter())
	stale = append(stale, counted.stale...)
	return Page{Videos: videos, Next: next, Source: sourceOf(outcome), Stale: stale}, nil
}

// videoPage is the projection.Page of one List.
type videoPage struct {
	service *Service
	query   Query
	before  uuid.UUID
	videos  []Video
}

// Tenant returns the caller's tenant.
func (p *videoPage) Tenant() string { return p.query.Caller.Tenant }

// Positions reads the positions of the tenant's videos.
func (p *videoPage) Positions(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error) {
	return videos{db: p.service.db}.positions(ctx, scopeOf(p.query.Caller), wanted)
}

// Read reads the page. If the query is a search, Read first waits for the query's turn.
func (p *videoPage) Read(ctx context.Context, positions []consistency.Position) (reached int, err error) {
	err = p.service.searches.do(ctx, p.query, func(ctx context.Context) (err error) {
		p.videos, reached, err = listVideos(ctx, p.service.db, p.query, p.before, positions)
		return err
	})
	return reached, err
}

// text is the length of v's text in an answer, in bytes.
func (v Video) text() int { return rest.TextSize(v.Title, v.Description) }

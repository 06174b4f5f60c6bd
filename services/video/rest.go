package video

import (
	_ "embed"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/pkg/eventing/consistency"
)

//go:embed openapi.json
var openAPI []byte

// maxBody holds the largest video with every character escaped.
const maxBody = 256 << 10

// restAPI is the API that openapi.json describes.
type restAPI struct {
	service *Service
	log     *slog.Logger
}

func (a restAPI) mount(r chi.Router) {
	rest.OpenAPI(r, openAPI)
	r.Post("/v1/videos", serve.Handler(a.log, a.create))
	r.Get("/v1/videos", serve.Handler(a.log, uncached(a.list)))
	r.Get("/v1/videos/{id}", serve.Handler(a.log, uncached(a.get)))
	r.Patch("/v1/videos/{id}", serve.Handler(a.log, a.update))
	r.Delete("/v1/videos/{id}", serve.Handler(a.log, a.delete))
	r.Put("/v1/users/{user_id}/engagements/{video_id}", serve.Handler(a.log, a.putEngagement))
	r.Delete("/v1/users/{user_id}/engagements/{video_id}", serve.Handler(a.log, a.deleteEngagement))
}

// uncached is for reads: a cached answer may be older than a write that its next reader
// knows of.
func uncached(h func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Cache-Control", "no-store")
		return h(w, r)
	}
}

func (a restAPI) create(w http.ResponseWriter, r *http.Request) error {
	var b body
	if err := rest.DecodeJSON(w, r, maxBody, &b); err != nil {
		return err
	}
	write, _ := newWrite(r)
	write.bad.Unless(write.IfVersion == 0, "If-Match", "means nothing before there is a video")
	_, v := b.read(&write.bad)
	v.UploaderID = write.bad.UUID("uploader_id", b.UploaderID.Value)
	answer, err := a.service.Create(r.Context(), v, write)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/videos/"+answer.Is.ID.String())
	writeAnswer(w, http.StatusCreated, answer)
	return nil
}

func (a restAPI) update(w http.ResponseWriter, r *http.Request) error {
	var b body
	if err := rest.DecodeJSON(w, r, maxBody, &b, "application/merge-patch+json", "application/json"); err != nil {
		return err
	}
	write, _ := newWrite(r)
	write.bad.Unless(!b.UploaderID.Set, "uploader_id", "never changes")
	fields, to := b.read(&write.bad)
	answer, err := a.service.Update(r.Context(), pathID(r, &write.bad), fields, to, write)
	if err != nil {
		return err
	}
	writeAnswer(w, http.StatusOK, answer)
	return nil
}

func (a restAPI) delete(w http.ResponseWriter, r *http.Request) error {
	var b struct {
		Reason string `json:"reason"`
	}
	if rest.HasBody(r) {
		if err := rest.DecodeJSON(w, r, maxBody, &b); err != nil {
			return err
		}
	}
	write, query := newWrite(r, "reason")
	write.bad.Unless(b.Reason == "" || !query.Has("reason"), "reason", "must not be given twice")
	answer, err := a.service.Delete(r.Context(), pathID(r, &write.bad), b.Reason+query.Get("reason"), write)
	if err != nil {
		return err
	}
	v := answer.Is
	writeHeaders(w, v.position(), answer.Replayed)
	rest.WriteJSON(w, http.StatusOK, map[string]any{
		"video_id": v.ID, "version": v.Version, "deleted_at": v.DeletedAt, "consistency_token": v.Token(),
	})
	return nil
}

func (a restAPI) get(w http.ResponseWriter, r *http.Request) error {
	var bad problem.Faults
	id := pathID(r, &bad)
	rest.Query(r, &bad)
	if err := bad.Err(); err != nil {
		return err
	}
	v, err := a.service.Get(r.Context(), id, false)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", rest.ETag(v.Version))
	rest.WriteJSON(w, http.StatusOK, v)
	return nil
}

func (a restAPI) list(w http.ResponseWriter, r *http.Request) error {
	var bad problem.Faults
	query := rest.Query(r, &bad, "page_size", "page_token", "uploader_id")
	size, f := rest.PageSize(query, &bad), Filter{}
	if query.Has("uploader_id") {
		f.UploaderID = bad.UUID("uploader_id", query.Get("uploader_id"))
	}
	if err := bad.Err(); err != nil {
		return err
	}
	videos, next, err := a.service.List(r.Context(), f, size, query.Get("page_token"))
	if err != nil {
		return err
	}
	rest.WriteJSON(w, http.StatusOK, map[string]any{"videos": videos, "next_page_token": next})
	return nil
}

// body has the fields that a caller may write. Absent means unchanged, null cleared.
type body struct {
	UploaderID      rest.Optional[string] `json:"uploader_id"`
	Title           rest.Optional[string] `json:"title"`
	Description     rest.Optional[string] `json:"description"`
	DurationSeconds rest.Optional[int64]  `json:"duration_seconds"`
	PublishedAt     rest.Optional[string] `json:"published_at"`
}

// read returns the names of the given fields, except the uploader, and a video with
// their values.
func (b body) read(bad *problem.Faults) (fields []string, v Video) {
	v = Video{Title: b.Title.Value, Description: b.Description.Value, DurationSeconds: b.DurationSeconds.Value}
	if b.PublishedAt.Set && !b.PublishedAt.Null {
		t, err := time.Parse(time.RFC3339, b.PublishedAt.Value)
		bad.Unless(err == nil, "published_at", "must be a time as in RFC 3339")
		v.PublishedAt = new(micros(t))
	}
	bad.Unless(!b.Title.Null, "title", "must not be null")
	bad.Unless(!b.DurationSeconds.Null, "duration_seconds", "must not be null")
	for field, set := range map[string]bool{
		"title": b.Title.Set, "description": b.Description.Set,
		"duration_seconds": b.DurationSeconds.Set, "published_at": b.PublishedAt.Set,
	} {
		if set {
			fields = append(fields, field)
		}
	}
	return fields, v
}

// writeAnswer answers a flat video with its token.
func writeAnswer(w http.ResponseWriter, status int, a Answer[Video]) {
	writeHeaders(w, a.Is.position(), a.Replayed)
	rest.WriteJSON(w, status, struct {
		Video
		Token string `json:"consistency_token"`
	}{a.Is, a.Is.Token()})
}

// writeHeaders sets the headers of every answer to a write, with the position that the
// write has reached.
func writeHeaders(w http.ResponseWriter, at consistency.Position, replayed bool) {
	w.Header().Set("ETag", rest.ETag(at.Version))
	w.Header().Set("Consistency-Token", token(at))
	if replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
}

// newWrite reads the headers of a write and its query; parameters are the allowed query
// parameters.
func newWrite(r *http.Request, parameters ...string) (w Write, query url.Values) {
	w.Keys = r.Header.Values(idempotency.Header)
	w.IfVersion = rest.IfMatch(r, &w.bad)
	return w, rest.Query(r, &w.bad, parameters...)
}

func pathID(r *http.Request, bad *problem.Faults) uuid.UUID {
	return bad.UUID("video_id", chi.URLParam(r, "id"))
}

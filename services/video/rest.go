package video

import (
	"cmp"
	_ "embed"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/services/video/aggregate"
)

//go:embed openapi.json
var openAPI []byte

// restAPI is the part of openapi.json that is about videos.
type restAPI struct{ service *Service }

// mount adds to r the routes of videos and the route of openapi.json.
func mount(r chi.Router, s *Service, log *slog.Logger) {
	a := restAPI{s}
	rest.OpenAPI(r, openAPI)
	r.Post("/v1/videos", serve.Handler(log, a.create))
	r.Get("/v1/videos", serve.Handler(log, a.list))
	r.Get("/v1/videos/{id}", serve.Handler(log, a.get))
	r.Patch("/v1/videos/{id}", serve.Handler(log, a.update))
	r.Delete("/v1/videos/{id}", serve.Handler(log, a.delete))
}

// restBody has the fields that a caller may write over REST. An absent field stays unchanged, and
// null clears a field.
type restBody struct {
	UploaderID      rest.Optional[string] `json:"uploader_id"`
	Title           rest.Optional[string] `json:"title"`
	Description     rest.Optional[string] `json:"description"`
	DurationSeconds rest.Optional[int64]  `json:"duration_seconds"`
	PublishedAt     rest.Optional[string] `json:"published_at"`
}

// video returns the names of the fields that b sets, and a video with the values of these fields.
// Neither result includes the uploader. video adds to found a violation for each value that is not valid.
func (b restBody) video(found *problem.Violations) (given []string, v Video) {
	v = Video{Title: b.Title.Value, Description: b.Description.Value, DurationSeconds: b.DurationSeconds.Value}
	if b.PublishedAt.Set && !b.PublishedAt.Null {
		t, ok := rest.ParseTime(b.PublishedAt.Value)
		found.Require(ok, "published_at", "must be a time as in RFC 3339")
		v.PublishedAt = new(aggregate.Micros(t))
	}
	take := func(name string, set, refused bool) {
		if set {
			given = append(given, name)
		}
		found.Require(!refused, name, "must not be null")
	}
	take("title", b.Title.Set, b.Title.Null)
	take("description", b.Description.Set, false)
	take("duration_seconds", b.DurationSeconds.Set, b.DurationSeconds.Null)
	take("published_at", b.PublishedAt.Set, false)
	return given, v
}

func (a restAPI) create(w http.ResponseWriter, r *http.Request) error {
	var b restBody
	if err := rest.DecodeJSON(w, r, aggregate.MaxBody, &b); err != nil {
		return err
	}
	var found problem.Violations
	options, _ := aggregate.HTTPOptions(r, &found)
	found.Require(!options.IfVersion.Given(), "If-Match", "means nothing before there is a video")
	_, v := b.video(&found)
	v.UploaderID = aggregate.OwnUser(options.Caller)
	if b.UploaderID.Set {
		v.UploaderID = found.UUID(uploaderID, b.UploaderID.Value)
	}
	result, err := a.service.Create(r.Context(), v, options, found)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/videos/"+result.Value.ID.String())
	writeResult(w, http.StatusCreated, result)
	return nil
}

func (a restAPI) update(w http.ResponseWriter, r *http.Request) error {
	var b restBody
	if err := rest.DecodeJSON(w, r, aggregate.MaxBody, &b, "application/merge-patch+json", "application/json"); err != nil {
		return err
	}
	var found problem.Violations
	options, _ := aggregate.HTTPOptions(r, &found)
	found.Require(!b.UploaderID.Set, uploaderID, "never changes")
	names, to := b.video(&found)
	id := pathID(r, &found)
	result, err := a.service.Update(r.Context(), id, names, to, options, found)
	if err != nil {
		return err
	}
	writeResult(w, http.StatusOK, result)
	return nil
}

func (a restAPI) delete(w http.ResponseWriter, r *http.Request) error {
	var b struct {
		Reason rest.Optional[string] `json:"reason"`
	}
	if rest.HasBody(r) {
		if err := rest.DecodeJSON(w, r, aggregate.MaxBody, &b); err != nil {
			return err
		}
	}
	var found problem.Violations
	options, query := aggregate.HTTPOptions(r, &found, "reason")
	found.Require(!b.Reason.Null, "reason", "must not be null")
	found.Require(!b.Reason.Set || !query.Has("reason"), "reason", "must not be given twice")
	id := pathID(r, &found)
	result, err := a.service.Delete(r.Context(), id, cmp.Or(b.Reason.Value, query.Get("reason")), options, found)
	if err != nil {
		return err
	}
	v := result.Value
	aggregate.WriteHeaders(w, v.Version, v.Token(), result.Replayed)
	rest.WriteJSON(w, http.StatusOK, map[string]any{
		"video_id": v.ID, "version": v.Version, "deleted_at": v.DeletedAt, "consistency_token": v.Token(),
	})
	return nil
}

func (a restAPI) get(w http.ResponseWriter, r *http.Request) error {
	var found problem.Violations
	id := pathID(r, &found)
	rest.Query(r, &found)
	if err := found.Err(); err != nil {
		return err
	}
	v, _, err := a.service.Get(r.Context(), auth.Of(r.Context()), id)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", rest.ETag(v.Version))
	rest.WriteJSON(w, http.StatusOK, v)
	return nil
}

func (a restAPI) list(w http.ResponseWriter, r *http.Request) error {
	var found problem.Violations
	query := rest.Query(r, &found, "page_size", "page_token", "uploader_id")
	size, f := rest.PageSize(query, &found), Filter{}
	if query.Has("uploader_id") {
		f = uploadedBy(found.UUID("uploader_id", query.Get("uploader_id")))
	}
	videos, next, err := a.service.List(r.Context(), auth.Of(r.Context()), f, size, query.Get("page_token"), found)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, http.StatusOK, map[string]any{"videos": videos, "next_page_token": next})
	return nil
}

// writeResult answers with one JSON object, which has the video's fields and its consistency token.
func writeResult(w http.ResponseWriter, status int, result aggregate.Result[Video]) {
	aggregate.WriteHeaders(w, result.Value.Version, result.Value.Token(), result.Replayed)
	rest.WriteJSON(w, status, struct {
		Video
		Token string `json:"consistency_token"`
	}{result.Value, result.Value.Token()})
}

func pathID(r *http.Request, found *problem.Violations) uuid.UUID {
	return found.UUID("video_id", chi.URLParam(r, "id"))
}

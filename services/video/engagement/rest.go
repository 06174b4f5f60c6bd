package engagement

import (
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/services/video/aggregate"
)

// restAPI serves the part of the file openapi.json in package video that is about engagements.
type restAPI struct{ service *Service }

// Mount adds the routes to r.
func Mount(r chi.Router, s *Service, log *slog.Logger) {
	a := restAPI{s}
	r.Put("/v1/users/{user_id}/engagements/{video_id}", serve.Handler(log, a.put))
	r.Delete("/v1/users/{user_id}/engagements/{video_id}", serve.Handler(log, a.delete))
}

func (a restAPI) put(w http.ResponseWriter, r *http.Request) error {
	// An absent field has its zero value, as in an empty engagement.
	var b struct {
		Liked          rest.Optional[bool]  `json:"liked"`
		Bookmarked     rest.Optional[bool]  `json:"bookmarked"`
		WatchedSeconds rest.Optional[int64] `json:"watched_seconds"`
	}
	if err := rest.DecodeJSON(w, r, aggregate.MaxBody, &b); err != nil {
		return err
	}
	var found problem.Violations
	options, _ := aggregate.HTTPOptions(r, &found)
	user, video := pathIDs(r, &found)
	found.Require(!b.Liked.Null, "liked", "must not be null")
	found.Require(!b.Bookmarked.Null, "bookmarked", "must not be null")
	found.Require(!b.WatchedSeconds.Null, "watched_seconds", "must not be null")
	result, err := a.service.Put(r.Context(), Engagement{
		UserID: user, VideoID: video, Liked: b.Liked.Value, Bookmarked: b.Bookmarked.Value, WatchedSeconds: b.WatchedSeconds.Value,
	}, options, found)
	if err != nil {
		return err
	}
	aggregate.WriteHeaders(w, result.Value.Version, result.Value.Token(), result.Replayed)
	rest.WriteJSON(w, http.StatusOK, struct {
		Engagement
		Token string `json:"consistency_token"`
	}{result.Value, result.Value.Token()})
	return nil
}

func (a restAPI) delete(w http.ResponseWriter, r *http.Request) error {
	if rest.HasBody(r) { // the client must not believe that a field of the body had an effect
		if err := rest.DecodeJSON(w, r, aggregate.MaxBody, &struct{}{}); err != nil {
			return err
		}
	}
	var found problem.Violations
	options, _ := aggregate.HTTPOptions(r, &found)
	user, video := pathIDs(r, &found)
	result, err := a.service.Delete(r.Context(), user, video, options, found)
	if err != nil {
		return err
	}
	e := result.Value
	aggregate.WriteHeaders(w, e.Version, e.Token(), result.Replayed)
	rest.WriteJSON(w, http.StatusOK, map[string]any{
		"user_id": e.UserID, "video_id": e.VideoID, "version": e.Version, "deleted_at": e.DeletedAt, "consistency_token": e.Token(),
	})
	return nil
}

func pathIDs(r *http.Request, found *problem.Violations) (user, video uuid.UUID) {
	return parseIDs(chi.URLParam(r, "user_id"), chi.URLParam(r, "video_id"), found)
}

func parseIDs(userID, videoID string, found *problem.Violations) (user, video uuid.UUID) {
	return found.UUID("user_id", userID), found.UUID("video_id", videoID)
}

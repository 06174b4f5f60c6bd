package video

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
)

func (a restAPI) putEngagement(w http.ResponseWriter, r *http.Request) error {
	// An absent field has the value of an empty engagement.
	var b struct {
		Liked          rest.Optional[bool]  `json:"liked"`
		Bookmarked     rest.Optional[bool]  `json:"bookmarked"`
		WatchedSeconds rest.Optional[int64] `json:"watched_seconds"`
	}
	if err := rest.DecodeJSON(w, r, maxBody, &b); err != nil {
		return err
	}
	write, user, video := newEngagementWrite(r)
	write.bad.Unless(!b.Liked.Null, "liked", "must not be null")
	write.bad.Unless(!b.Bookmarked.Null, "bookmarked", "must not be null")
	write.bad.Unless(!b.WatchedSeconds.Null, "watched_seconds", "must not be null")
	answer, err := a.service.PutEngagement(r.Context(), Engagement{
		UserID: user, VideoID: video, Liked: b.Liked.Value, Bookmarked: b.Bookmarked.Value, WatchedSeconds: b.WatchedSeconds.Value,
	}, write)
	if err != nil {
		return err
	}
	at := answer.Is.position()
	writeHeaders(w, at, answer.Replayed)
	rest.WriteJSON(w, http.StatusOK, struct {
		Engagement
		Token string `json:"consistency_token"`
	}{answer.Is, token(at)})
	return nil
}

func (a restAPI) deleteEngagement(w http.ResponseWriter, r *http.Request) error {
	write, user, video := newEngagementWrite(r)
	answer, err := a.service.DeleteEngagement(r.Context(), user, video, write)
	if err != nil {
		return err
	}
	e, at := answer.Is, answer.Is.position()
	writeHeaders(w, at, answer.Replayed)
	rest.WriteJSON(w, http.StatusOK, map[string]any{
		"user_id": e.UserID, "video_id": e.VideoID, "version": e.Version, "deleted_at": e.DeletedAt, "consistency_token": token(at),
	})
	return nil
}

// newEngagementWrite reads the common part of both writes: headers, path, and no query.
func newEngagementWrite(r *http.Request) (w Write, user, video uuid.UUID) {
	w, _ = newWrite(r)
	user, video = engagementName(chi.URLParam(r, "user_id"), chi.URLParam(r, "video_id"), &w.bad)
	return w, user, video
}

func engagementName(userID, videoID string, bad *problem.Faults) (user, video uuid.UUID) {
	return bad.UUID("user_id", userID), bad.UUID("video_id", videoID)
}

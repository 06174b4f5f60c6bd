package catalog

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
)

func (a restAPI) listEngagements(w http.ResponseWriter, r *http.Request) error {
	var found problem.Violations
	request, query := readRequest(w, r, &found, "page_size", "page_token")
	required, err := EngagementRequirement(request)
	if err := found.Take(err); err != nil {
		return err
	}
	q := EngagementQuery{
		UserID: chi.URLParam(r, "user_id"), PageSize: pageSize(query, &found), PageToken: query.Get("page_token"),
		Caller: auth.Of(r.Context()),
	}
	q.Found = found
	engagements, err := a.service.ListEngagements(r.Context(), q, required)
	if err != nil {
		return err
	}
	w.Header().Set("Consistency-Source", string(engagements.Source))
	rest.WriteJSON(w, http.StatusOK, engagements)
	return nil
}

package catalog

import (
	_ "embed"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/internal/serve"
	"example.com/lockstep/pkg/eventing/consistency"
)

//go:embed openapi.json
var openAPI []byte

// restAPI is the REST API that openapi.json describes.
type restAPI struct {
	service *Service
	log     *slog.Logger
}

func (a restAPI) mount(r chi.Router) {
	rest.OpenAPI(r, openAPI)
	r.Get("/v1/videos", serve.Handler(a.log, a.list))
	r.Get("/v1/videos/{id}", serve.Handler(a.log, a.get))
	r.Get("/v1/users/{user_id}/engagements", serve.Handler(a.log, a.listEngagements))
}

// readRequest reads the headers and the query of a read, and adds their faults to found. parameters
// are the query parameters of this read, besides consistency_token, which every read takes.
func readRequest(
	w http.ResponseWriter, r *http.Request, found *problem.Violations, parameters ...string,
) (consistency.Request, url.Values) {
	query := rest.Query(r, found, append(parameters, "consistency_token")...)
	request := rest.ConsistencyRequest(w, r, query, found)
	request.Tenant = auth.Of(r.Context()).Tenant
	return request, query
}

func (a restAPI) get(w http.ResponseWriter, r *http.Request) error {
	var found problem.Violations
	request, _ := readRequest(w, r, &found)
	required, err := VideoRequirement(request)
	if err := found.Take(err); err != nil {
		return err
	}
	id := found.UUID("video_id", chi.URLParam(r, "id"))
	if err := found.Err(); err != nil {
		return err
	}
	answer, err := a.service.Get(r.Context(), auth.Of(r.Context()), id, required)
	for name, value := range answer.metadata() {
		w.Header().Set(name, value)
	}
	if err != nil {
		return err
	}
	w.Header().Set("ETag", rest.ETag(answer.Version))
	rest.WriteJSON(w, http.StatusOK, answer)
	return nil
}

func (a restAPI) list(w http.ResponseWriter, r *http.Request) error {
	var found problem.Violations
	request, query := readRequest(w, r, &found, "page_size", "page_token", "uploader_id", "q")
	required, err := VideoRequirement(request)
	if err := found.Take(err); err != nil {
		return err
	}
	q := Query{
		UploaderID: query.Get("uploader_id"), Title: query.Get("q"),
		PageSize: pageSize(query, &found), PageToken: query.Get("page_token"), Caller: auth.Of(r.Context()),
	}
	found.Require(q.UploaderID != "" || !query.Has("uploader_id"), "uploader_id", "must not be empty")
	q.Found = found
	videos, err := a.service.List(r.Context(), q, required)
	if err != nil {
		return err
	}
	w.Header().Set("Consistency-Source", string(videos.Source))
	rest.WriteJSON(w, http.StatusOK, videos)
	return nil
}

// pageSize reads page_size. It refuses 0, which stands for the default in a Query.
func pageSize(query url.Values, bad *problem.Violations) int {
	size := rest.PageSize(query, bad)
	bad.Require(size != 0, "page_size", "must be a whole number above zero")
	return size
}

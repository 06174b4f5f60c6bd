package catalog

import (
	_ "embed"
	"log/slog"
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"example.com/lockstep/internal/page"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/serve"
)

//go:embed openapi.json
var openAPI []byte

// rest is the REST API that openapi.json describes.
type rest struct {
	service *Service
	log     *slog.Logger
}

func (a rest) mount(r chi.Router) {
	serve.OpenAPI(r, openAPI)
	r.Get("/v1/videos", a.read(a.list, "page_size", "page_token", "uploader_id", "q"))
	r.Get("/v1/videos/{id}", a.read(a.get))
}

// read checks what every read takes besides its own query parameters.
func (a rest) read(answer func(http.ResponseWriter, *http.Request, Read, url.Values) error, parameters ...string) http.HandlerFunc {
	parameters = append(parameters, "consistency_token")
	return serve.Handler(a.log, func(w http.ResponseWriter, r *http.Request) error {
		// What a cache keeps may be older than its next reader's token.
		w.Header().Set("Cache-Control", "no-store")
		var bad problem.Faults
		query := serve.Query(r, &bad, parameters...)
		if err := bad.Err(); err != nil {
			return err
		}
		read, err := demand(w, r, query)
		if err != nil {
			return err
		}
		return answer(w, r, read, query)
	})
}

func (a rest) get(w http.ResponseWriter, r *http.Request, read Read, _ url.Values) error {
	id, err := parseID(chi.URLParam(r, "id"))
	if err != nil {
		return problem.Invalid("video_id", err.Error())
	}
	v, source, err := a.service.Get(r.Context(), id, read)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", serve.ETag(v.Version))
	serve.WriteJSON(w, http.StatusOK, struct {
		Video
		Source Source `json:"source"`
	}{v, source})
	return nil
}

func (a rest) list(w http.ResponseWriter, r *http.Request, read Read, query url.Values) error {
	var bad problem.Faults
	q := Query{
		UploaderID: query.Get("uploader_id"), Title: query.Get("q"),
		PageSize: page.Size(query, &bad), PageToken: query.Get("page_token"),
	}
	bad.Unless(q.PageSize != 0, "page_size", "must be a whole number above zero") // 0 is Query's default
	bad.Unless(q.UploaderID != "" || !query.Has("uploader_id"), "uploader_id", "must not be empty")
	if err := bad.Err(); err != nil {
		return err
	}
	videos, err := a.service.List(r.Context(), q, read)
	if err != nil {
		return err
	}
	serve.WriteJSON(w, http.StatusOK, videos)
	return nil
}

// demand is how fresh r wants its answer.
func demand(w http.ResponseWriter, r *http.Request, query url.Values) (Read, error) {
	wait, err := serve.PreferredWait(w, r, defaultWait, maxWait)
	if err != nil {
		return Read{}, err
	}
	token, field, err := serve.ConsistencyToken(r, query)
	if err != nil || token == "" {
		return Read{}, err
	}
	return NewRead(token, field, wait)
}

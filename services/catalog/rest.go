package catalog

import (
	_ "embed"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/go-chi/chi/v5"

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

// read checks what every read takes besides its own query parameters, and
// answers an error as a problem document.
func (a rest) read(answer func(http.ResponseWriter, *http.Request, Read, url.Values) error, parameters ...string) http.HandlerFunc {
	parameters = append(parameters, "consistency_token")
	return func(w http.ResponseWriter, r *http.Request) {
		// What a cache keeps may be older than its next reader's token.
		w.Header().Set("Cache-Control", "no-store")
		var read Read
		var bad problem.Faults
		query := serve.Query(r, &bad, parameters...)
		err := bad.Err()
		if err == nil {
			read, err = demand(w.Header(), r, query)
		}
		if err == nil {
			err = answer(w, r, read, query)
		}
		if err != nil {
			problem.Write(w, r, a.log, err)
		}
	}
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
	w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(v.Version, 10)))
	serve.WriteJSON(w, http.StatusOK, struct {
		Video
		Source Source `json:"source"`
	}{v, source})
	return nil
}

func (a rest) list(w http.ResponseWriter, r *http.Request, read Read, query url.Values) error {
	q := Query{UploaderID: query.Get("uploader_id"), Title: query.Get("q"), PageToken: query.Get("page_token")}
	if query.Has("uploader_id") && q.UploaderID == "" {
		return problem.Invalid("uploader_id", "must not be empty")
	}
	if query.Has("page_size") {
		n, err := strconv.Atoi(query.Get("page_size"))
		if q.PageSize = n; err != nil || n == 0 {
			return problem.Invalid("page_size", "must be a whole number above zero")
		}
	}
	page, err := a.service.List(r.Context(), q, read)
	if err != nil {
		return err
	}
	serve.WriteJSON(w, http.StatusOK, page)
	return nil
}

// demand is how fresh r wants its answer; answer gets what it has to say of that.
func demand(answer http.Header, r *http.Request, query url.Values) (Read, error) {
	wait, preferred, err := serve.PreferredWait(r.Header, defaultWait, maxWait)
	if err != nil {
		return Read{}, err
	}
	if preferred {
		answer.Set("Preference-Applied", "wait="+strconv.Itoa(int(wait.Seconds())))
	}
	field, tokens := "Consistency-Token", slices.Compact(r.Header.Values("Consistency-Token"))
	if query.Has("consistency_token") {
		if len(tokens) == 0 {
			field = "consistency_token"
		}
		tokens = slices.Compact(append(tokens, query.Get("consistency_token")))
	}
	switch len(tokens) {
	case 0:
		return Read{}, nil
	case 1:
		return NewRead(tokens[0], field, wait)
	}
	return Read{}, problem.Invalid(field, "is given twice, with different tokens")
}

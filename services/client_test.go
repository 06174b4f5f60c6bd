package services_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// uploader is the uploader of all videos.
const uploader = "7d3c1f0e-5b7a-4c7e-9a64-0f2f6f3d5a11"

// answer is a service's response to a request; it may be a problem document.
type answer struct {
	code    int
	header  http.Header
	closing bool // the instance closes the connection: it drains

	ID          string     `json:"video_id"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Version     int64      `json:"version"`
	DeletedAt   *time.Time `json:"deleted_at"`
	Token       string     `json:"consistency_token"`
	Source      string     `json:"source"`
	Reason      string     `json:"reason"`
	Type        string     `json:"type"`
	Videos      []answer   `json:"videos"`
	Engagements []liked    `json:"engagements"`
	Stale       []lag      `json:"stale"`
	AtLeast     int64      `json:"at_least"`
}

// liked is an engagement as catalog lists it.
type liked struct {
	VideoID        string `json:"video_id"`
	Liked          bool   `json:"liked"`
	Bookmarked     bool   `json:"bookmarked"`
	WatchedSeconds int64  `json:"watched_seconds"`
	Version        int64  `json:"version"`
}

// lag is a video that an answer shows in an older state than its reader demanded.
type lag struct {
	ID      string `json:"id"`
	Version int64  `json:"version"`
	AtLeast int64  `json:"at_least"`
}

// fields is a request's body.
type fields map[string]any

// request makes one call. It returns an error if no answer came.
func request(ctx context.Context, client *http.Client, method, url string, header http.Header, body fields) (answer, error) {
	var payload bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&payload).Encode(body); err != nil {
			return answer{}, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, url, &payload)
	if err != nil {
		return answer{}, err
	}
	if header != nil {
		r.Header = header
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	a := answer{code: res.StatusCode, header: res.Header, closing: res.Close}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
		return answer{}, fmt.Errorf("%s %s: read answer: %w", method, url, err)
	}
	return a, nil
}

// call is request for a service that is up.
func call(t testing.TB, method, url string, header http.Header, body fields) answer {
	t.Helper()
	// It uses a connection of its own: a kept one may lead to a service that has been
	// stopped since.
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	a, err := request(t.Context(), &client, method, url, header, body)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (w *world) videos(id string) string { return "http://" + w.videoAddr + "/v1/videos" + id }

func (w *world) create(t testing.TB, title string) answer {
	t.Helper()
	a := call(t, http.MethodPost, w.videos(""), nil, fields{"uploader_id": uploader, "title": title})
	return a.is(t, http.StatusCreated, 1)
}

func (w *world) update(t testing.TB, before answer, body fields) answer {
	t.Helper()
	a := call(t, http.MethodPatch, w.videos("/"+before.ID), nil, body)
	return a.is(t, http.StatusOK, before.Version+1)
}

func (w *world) remove(t testing.TB, before answer) answer {
	t.Helper()
	a := call(t, http.MethodDelete, w.videos("/"+before.ID), nil, nil)
	return a.is(t, http.StatusOK, before.Version+1)
}

// read asks catalog for a video, no older than the token says; the projection
// gets wait seconds to reach it.
func (w *world) read(t testing.TB, id, token string, wait int) answer {
	t.Helper()
	header := http.Header{"Prefer": {"wait=" + strconv.Itoa(wait)}}
	if token != "" {
		header.Set("Consistency-Token", token)
	}
	return call(t, http.MethodGet, "http://"+w.catalogAddr+"/v1/videos/"+id, header, nil)
}

// fresh reads with a token until the projection has the version.
func (w *world) fresh(t testing.TB, id, token string) answer {
	t.Helper()
	return ofProjection(t, func() answer { return w.read(t, id, token, 10) })
}

// ofProjection repeats a read with a token until the projection answers it: on a busy machine
// it may take longer than a reader may wait, who then has the owner's answer or none.
func ofProjection(t testing.TB, read func() answer) (a answer) {
	t.Helper()
	eventually(t, "the projection has what the token demands", func() bool {
		a = read()
		return a.Source != "authority" && a.code != http.StatusServiceUnavailable
	})
	return a.from(t, "projection")
}

// ofOwner reads with a token that the owner alone has an answer to. On a busy machine catalog
// may not wait long enough for it, and then says when to come again.
func (w *world) ofOwner(t testing.TB, id, token string) (a answer) {
	t.Helper()
	eventually(t, "the owner answers", func() bool {
		a = w.read(t, id, token, 0)
		return a.Reason != "NOT_FRESH_ENOUGH"
	})
	return a.from(t, "authority")
}

// reaches waits until a plain read of the projection shows the state of written.
func (w *world) reaches(t testing.TB, written answer) answer {
	t.Helper()
	var a answer
	eventually(t, fmt.Sprintf("the projection has version %d of %s", written.Version, written.ID), func() bool {
		a = w.read(t, written.ID, "", 0)
		return a.Version == written.Version
	})
	return a
}

// is fails the test unless a has this status and version.
func (a answer) is(t testing.TB, code int, version int64) answer {
	t.Helper()
	if a.code != code || a.Version != version {
		t.Fatalf("answer is %d with version %d, want %d with version %d: %+v", a.code, a.Version, code, version, a)
	}
	return a
}

// from fails the test unless source is the answer's consistency source.
func (a answer) from(t testing.TB, source string) answer {
	t.Helper()
	if a.Source != source {
		t.Fatalf("answer is from %q, want %q: %+v", a.Source, source, a)
	}
	return a
}

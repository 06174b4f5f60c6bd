package pair

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"

	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/migrations"
)

// The services do not limit the number of all requests themselves. Cloud Run does so in front of an instance,
// and answers a request without a place with 429. The bench does the same, with the limits of deploy/terraform.
const (
	// videoPlaces is the number of requests that an instance of video gets at once.
	videoPlaces = 80
	// catalogPlaces is the number of requests that an instance of catalog gets at once.
	catalogPlaces = 1000
	// waiting is the number of readers that may wait at catalog.
	waiting = catalogPlaces / 2
)

// system has both services, and what the clients need to reach them.
type system struct {
	client                 http.Client
	database               *rig.Database
	video, catalog         *rig.Service
	videoFront, readsFront places         // of the requests at video and of the reads at catalog
	closers                []func() error // in the order of the starts
}

// places are the places for the requests that an instance handles at once.
type places chan struct{}

// enter takes a place, and reports whether a place was free. leave gives the place back.
func (p places) enter() bool {
	select {
	case p <- struct{}{}:
		return true
	default:
		return false
	}
}

func (p places) leave() { <-p }

// start starts a pair. It returns when the pair has created a video and shown it.
func start(ctx context.Context, p *rig.Postgres) (_ *system, err error) {
	s := &system{videoFront: make(places, videoPlaces), readsFront: make(places, catalogPlaces)}
	s.client.Transport = &http.Transport{MaxIdleConnsPerHost: catalogPlaces}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	d, err := p.ForBoth(ctx)
	if err != nil {
		return nil, err
	}
	s.database = d
	s.closers = append(s.closers, func() error { return d.Drop(ctx) })
	local, err := rig.StartProvisionedBroker(ctx)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, local.Close)
	if s.video, err = rig.StartService(ctx, migrations.Video, d, local.Environment()); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.video.Close)
	s.catalog, err = rig.StartService(ctx, migrations.Catalog, d, append(local.Environment(), "VIDEO_SERVICE_ADDR="+s.video.Addr),
		"serve", "-max-waiting-reads="+strconv.Itoa(waiting))
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.catalog.Close)
	if code, err := s.walk(ctx); err != nil || code != http.StatusOK {
		return nil, fmt.Errorf("the first video: status %d: %w", code, err)
	}
	return s, nil
}

// Close ends the services, then the broker, and drops the database.
func (s *system) Close() error {
	s.client.CloseIdleConnections()
	var errs []error
	for _, closer := range slices.Backward(s.closers) {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// request is the body of the request that creates a video.
var request = []byte(`{"uploader_id":"0190a5d0-0000-7000-8000-000000000001","title":"Lockstep in one minute",` +
	`"description":"A description of some length, as people write them.","duration_seconds":60}`)

// broken is the status of a request that got no valid answer.
const broken = 0

// walk creates a video and reads it with its token. It returns 200, or the status of the answer
// that ended the unit. Its error is never another error than that of ctx.
func (s *system) walk(ctx context.Context) (int, error) {
	code, token, id := s.create(ctx)
	if code == http.StatusCreated {
		code = s.read(ctx, id, token)
	}
	return code, ctx.Err()
}

func (s *system) create(ctx context.Context) (code int, token, id string) {
	if !s.videoFront.enter() {
		return http.StatusTooManyRequests, "", ""
	}
	defer s.videoFront.leave()
	var video struct {
		ID string `json:"video_id"`
	}
	url, header := "http://"+s.video.Addr+"/v1/videos", http.Header{"Content-Type": {"application/json"}}
	code, header = s.call(ctx, http.MethodPost, url, header, &video)
	return code, header.Get("Consistency-Token"), video.ID
}

// read reads the video, and returns the status. An answer from the owner counts as fresh, too.
func (s *system) read(ctx context.Context, id, token string) int {
	if !s.readsFront.enter() {
		return http.StatusTooManyRequests
	}
	defer s.readsFront.leave()
	var video struct {
		Version int64 `json:"version"`
	}
	code, _ := s.call(ctx, http.MethodGet, "http://"+s.catalog.Addr+"/v1/videos/"+id,
		http.Header{"Consistency-Token": {token}, "Prefer": {"wait=5"}}, &video)
	if code == http.StatusOK && video.Version != 1 {
		return broken
	}
	return code
}

// call sends a request and returns the status of the answer. If the answer is a success, call
// decodes its body into out.
func (s *system) call(ctx context.Context, method, url string, header http.Header, out any) (int, http.Header) {
	var body io.Reader
	if method == http.MethodPost {
		body = bytes.NewReader(request)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return broken, nil
	}
	r.Header = header
	response, err := s.client.Do(r)
	if err != nil {
		return broken, nil
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return broken, nil
	}
	if response.StatusCode/100 == 2 && json.Unmarshal(text, out) != nil {
		return broken, nil
	}
	return response.StatusCode, response.Header
}

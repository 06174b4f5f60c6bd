package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	localpostgres "example.com/lockstep/internal/local/postgres"
	"example.com/lockstep/lab/bench/rig"
	"example.com/lockstep/migrations"
)

// pair has both services, which run in one mode.
type pair struct {
	client         http.Client
	video, catalog *rig.Process
	closers        []func() error // in the order of the starts
}

// startPair starts a pair. It returns when the pair has created a video and shown it.
func startPair(ctx context.Context, p *rig.Postgres, mode, endpoint string) (_ *pair, err error) {
	one := &pair{client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, one.Close())
		}
	}()
	d, err := p.ForBoth(ctx)
	if err != nil {
		return nil, err
	}
	one.closers = append(one.closers, func() error { return d.Drop(ctx) })
	local, err := rig.StartProvisionedBroker(ctx)
	if err != nil {
		return nil, err
	}
	one.closers = append(one.closers, local.Close)
	environment := local.Environment()
	if mode == on {
		// The default interval is a minute, but a run is shorter than that. An export takes CPU
		// time for all metrics. So a very short interval would cost more than the interval costs in
		// production.
		environment = append(environment, "OTEL_EXPORTER_OTLP_ENDPOINT="+endpoint, "OTEL_METRIC_EXPORT_INTERVAL=10000")
	}
	start := func(service migrations.Service, more ...string) (*rig.Process, error) {
		url, err := localpostgres.ServiceURL(ctx, d.Admin, "", service.Role())
		if err != nil {
			return nil, err
		}
		running, err := rig.StartProcess(ctx, slices.Concat(environment, more, []string{"DATABASE_URL=" + url}), Command, string(service), mode)
		if err == nil {
			one.closers = append(one.closers, running.Close)
		}
		return running, err
	}
	if one.video, err = start(migrations.Video); err != nil {
		return nil, err
	}
	if one.catalog, err = start(migrations.Catalog, "VIDEO_SERVICE_ADDR="+one.video.Addr); err != nil {
		return nil, err
	}
	err = one.walk(ctx)
	return one, err
}

// Close ends the services, and then the broker and the database.
func (p *pair) Close() error {
	p.client.CloseIdleConnections()
	var errs []error
	for _, closer := range slices.Backward(p.closers) {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

// request is the body of the request that creates a video.
var request = []byte(`{"uploader_id":"0190a5d0-0000-7000-8000-000000000001","title":"Lockstep in one minute","duration_seconds":60}`)

// walk creates a video, and reads it after its event is applied.
func (p *pair) walk(ctx context.Context) error {
	created, err := p.call(ctx, http.MethodPost, "http://"+p.video.Addr+"/v1/videos", http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return err
	}
	shown, err := p.call(ctx, http.MethodGet, "http://"+p.catalog.Addr+"/v1/videos/"+created.ID,
		http.Header{"Consistency-Token": {created.Token}, "Prefer": {"wait=10"}})
	if err == nil && shown.Source != "projection" {
		err = fmt.Errorf("a read was answered by the %s", shown.Source)
	}
	return err
}

// answer is the part of an answer that the bench reads.
type answer struct {
	ID     string `json:"video_id"`
	Token  string `json:"consistency_token"`
	Source string `json:"source"`
}

func (p *pair) call(ctx context.Context, method, url string, header http.Header) (a answer, err error) {
	var body io.Reader
	if method == http.MethodPost {
		body = bytes.NewReader(request)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return a, err
	}
	r.Header = header
	response, err := p.client.Do(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return a, err
	}
	if response.StatusCode/100 != 2 {
		return a, fmt.Errorf("%s %s: %s: %s", method, url, response.Status, text)
	}
	err = json.Unmarshal(text, &a)
	return a, err
}

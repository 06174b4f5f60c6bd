// Package walk takes one video through both services, as a user would. It creates, updates and
// deletes the video. After each write it reads the video from catalog with the token of the write.
package walk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// walkTime bounds the walk-through, which takes under a second on an idle
	// machine.
	walkTime = 2 * time.Minute
	// callTime bounds one call. It covers catalog's longest wait for a token, and catalog's call to
	// the owner after that wait.
	callTime = 20 * time.Second
	// readAttempts bounds the reads of a step. One read may not be enough, because a broker that
	// has just started may need longer for its first message than the longest wait of one read.
	readAttempts = 3
	// pollInterval is the pause between two checks of a condition without a
	// notification.
	pollInterval = 20 * time.Millisecond
	// readyTime bounds the wait for one service, which takes milliseconds on an
	// idle machine.
	readyTime = time.Minute
)

// User is the uploader of the video.
var User = uuid.MustParse("7d3c1f0e-5b7a-4c7e-9a64-0f2f6f3d5a11")

// Step is one write to the video and the read that saw it.
type Step struct {
	Name             string `json:"name"`
	VideoID          string `json:"video_id"`
	EventID          string `json:"event_id"`
	Version          int64  `json:"version"`
	ConsistencyToken string `json:"consistency_token"`
	// Source is the source of the answer. It is the projection or the owner.
	Source string `json:"source"`

	// CommittedAt is the time of the write, from the outbox.
	CommittedAt time.Time `json:"committed_at"`
	// PublishedAt is the broker's time of the event's message, from the inbox.
	PublishedAt time.Time `json:"published_at"`
	// AppliedAt is the time at which catalog applied the event, from the projection.
	AppliedAt time.Time `json:"applied_at"`
	// ReadAt is the time of the answer to the read, by the clock of this process.
	ReadAt time.Time `json:"read_at"`
	// ReadStatus is the status of the read: 410 for a deleted video.
	ReadStatus int `json:"-"`
}

type walker struct {
	Client
	video, catalog string
	db             *pgx.Conn
}

// write is a call to video in one step. answers is the expected status of the call. readAnswers is
// the expected status of catalog's reads afterwards.
type write struct {
	name, method, body   string
	answers, readAnswers int
}

// writes returns the writes in the life of the video. All writes but the first use the video's id.
func writes() []write {
	return []write{
		{"created", http.MethodPost,
			`{"uploader_id":"` + User.String() + `","title":"Lockstep","duration_seconds":90}`,
			http.StatusCreated, http.StatusOK},
		{"updated", http.MethodPatch, `{"title":"Lockstep, second cut"}`, http.StatusOK, http.StatusOK},
		{"deleted", http.MethodDelete, `{"reason":"the walk-through is over"}`, http.StatusOK, http.StatusGone},
	}
}

// Walk makes the calls, over HTTP only, to the services at the base URLs video and catalog. It
// sends token, a token of User, unless token is empty. It uses db, the administrator's
// connection, only to read the times. Walk returns an error if a step fails.
func Walk(ctx context.Context, video, catalog, token string, db *pgx.Conn) ([]Step, error) {
	ctx, cancel := context.WithTimeout(ctx, walkTime)
	defer cancel()
	w := walker{Client: Client{Token: token}, video: video, catalog: catalog, db: db}
	var steps []Step
	path := "/v1/videos"
	for _, wr := range writes() {
		s, err := w.step(ctx, wr, path)
		if err != nil {
			return nil, fmt.Errorf("walk-through, %s: %w", wr.name, err)
		}
		steps = append(steps, s)
		path = "/v1/videos/" + s.VideoID
	}
	return steps, nil
}

// step makes one write and reads it back. It also waits until both databases have the
// times of the write, and reads them, because the next write would overwrite catalog's.
func (w *walker) step(ctx context.Context, wr write, path string) (Step, error) {
	a, err := w.call(ctx, wr.method, w.video+path, wr.body, nil, wr.answers)
	if err != nil {
		return Step{}, err
	}
	s := Step{Name: wr.name, VideoID: a.ID.String(), Version: a.Version, ConsistencyToken: a.Token}
	if err := w.read(ctx, &s, wr.readAnswers); err != nil {
		return Step{}, err
	}
	err = w.recall(ctx, &s)
	return s, err
}

// read reads the video from catalog with the token of the write. If the owner has answered in place
// of the projection, it reads again. want is the expected status.
func (w *walker) read(ctx context.Context, s *Step, want int) error {
	// Ten seconds is the longest time that catalog waits before it asks the
	// owner.
	header := http.Header{"Consistency-Token": {s.ConsistencyToken}, "Prefer": {"wait=10"}}
	for range readAttempts {
		a, err := w.call(ctx, http.MethodGet, w.catalog+"/v1/videos/"+s.VideoID, "", header, want)
		if err != nil {
			return err
		}
		if a.Version != s.Version {
			return fmt.Errorf("read version %d with the token of version %d", a.Version, s.Version)
		}
		s.Source, s.ReadAt, s.ReadStatus = a.Source, time.Now().UTC(), want
		if s.Source == "projection" {
			return nil
		}
	}
	return fmt.Errorf("the projection has not reached version %d after %d reads with wait=10", s.Version, readAttempts)
}

func (w *walker) call(ctx context.Context, method, url, body string, header http.Header, want int) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	a, err := w.Call(ctx, method, url, body, header)
	if err == nil && a.Status != want {
		err = fmt.Errorf("%s %s: %d %s, want %d: %s", method, url, a.Status, http.StatusText(a.Status), want, a.Detail)
	}
	return a, err
}

// recall adds the event's id and its recorded times. It polls, because after a repair from the
// owner the inbox row is not committed together with the projection.
func (w *walker) recall(ctx context.Context, s *Step) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	for {
		err := w.db.QueryRow(ctx, `
			SELECT o.id::text, o.occurred_at, i.publish_time, p.applied_at
			  FROM video.outbox o
			  JOIN catalog.inbox i ON i.event_id = o.id AND i.status = 'done'
			  JOIN catalog.video_projection p ON p.video_id = o.aggregate_id::uuid AND p.version = o.version
			 WHERE o.aggregate_type = 'video' AND o.aggregate_id = $1 AND o.version = $2`,
			s.VideoID, s.Version).Scan(&s.EventID, &s.CommittedAt, &s.PublishedAt, &s.AppliedAt)
		if !errors.Is(err, pgx.ErrNoRows) {
			s.CommittedAt, s.PublishedAt, s.AppliedAt = s.CommittedAt.UTC(), s.PublishedAt.UTC(), s.AppliedAt.UTC()
			return err
		}
		if !backoff.Sleep(ctx, pollInterval, nil) {
			return fmt.Errorf("find what was recorded of version %d: %w", s.Version, ctx.Err())
		}
	}
}

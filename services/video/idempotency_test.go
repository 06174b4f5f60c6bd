package video

import (
	"bytes"
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/problem"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/aggregate"
)

// checkReplay checks that second repeats first.
func checkReplay(t *testing.T, first, second reply) {
	t.Helper()
	if first.Header.Get("Idempotency-Replayed") != "" || second.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("Idempotency-Replayed is %q, then %q", first.Header.Get("Idempotency-Replayed"), second.Header.Get("Idempotency-Replayed"))
	}
	if first.Status != second.Status {
		t.Errorf("status %d, then %d", first.Status, second.Status)
	}
	if diff := cmp.Diff(string(first.Raw), string(second.Raw)); diff != "" {
		t.Errorf("another body (-first +second):\n%s", diff)
	}
	for _, name := range []string{"ETag", "Location", "Consistency-Token"} {
		if first.Header.Get(name) != second.Header.Get(name) {
			t.Errorf("%s is %q, then %q", name, first.Header.Get(name), second.Header.Get(name))
		}
	}
}

func TestRetryGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	d := draft(nil)
	created := a.call("POST", "/v1/videos", d, "Idempotency-Key", "k")
	checkReplay(t, created, a.call("POST", "/v1/videos", d, "Idempotency-Key", "k"))
	video := created.Header.Get("Location")

	patched := a.call("PATCH", video, `{"title": "a", "duration_seconds": 5}`, "Idempotency-Key", "k", "If-Match", `"1"`)
	a.call("PATCH", video, `{"title": "b"}`)
	checkReplay(t, patched, a.call("PATCH", video, ` {"duration_seconds":5,  "title":"a"}`, "Idempotency-Key", "k", "If-Match", `"1"`))
	unchanged := a.call("PATCH", video, `{"title": "b"}`, "Idempotency-Key", "same")
	a.call("PATCH", video, `{"title": "c"}`)
	checkReplay(t, unchanged, a.call("PATCH", video, `{"title": "b"}`, "Idempotency-Key", "same"))

	deleted := a.call("DELETE", video, `{"reason": "r"}`, "Idempotency-Key", "k")
	checkReplay(t, deleted, a.call("DELETE", video+"?reason=r", nil, "Idempotency-Key", "k"))
	checkReplay(t, patched, a.call("PATCH", video, `{"title":"a","duration_seconds":5}`, "Idempotency-Key", "k"))

	if diff := cmp.Diff(rows{Videos: 1, Outbox: 5, Keys: 4}, a.rows()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if len(a.wakeups) != 5 {
		t.Errorf("the relay was woken %d times, want 5", len(a.wakeups))
	}
}

func TestKeyOfAnotherRequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	video := a.call("POST", "/v1/videos", draft(nil), "Idempotency-Key", "k").Header.Get("Location")
	a.call("PATCH", video, `{"description": ""}`, "Idempotency-Key", "k")
	before := a.rows()
	for _, r := range []reply{
		a.call("POST", "/v1/videos", draft(nil), "Idempotency-Key", "k"),
		a.call("PATCH", video, `{"published_at": null}`, "Idempotency-Key", "k"),
		a.call("PATCH", video, `{"description": "", "published_at": null}`, "Idempotency-Key", "k"),
	} {
		if r.Status != http.StatusUnprocessableEntity || r.field("reason") != "IDEMPOTENCY_KEY_REUSED" || !blames(r, "Idempotency-Key") {
			t.Errorf("got %d %s", r.Status, r.Raw)
		}
	}
	if after := a.rows(); after != before {
		t.Errorf("rows %+v became %+v", before, after)
	}
	// Another operation or another video has its own keys.
	if r := a.call("PATCH", path(a.create()), `{"title": "z"}`, "Idempotency-Key", "k"); r.Status != http.StatusOK {
		t.Errorf("got %d %s", r.Status, r.Raw)
	}
}

func TestConcurrentDuplicatesShareOneAnswer(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	const duplicates = 10
	for _, request := range []struct {
		method, target string
		body           any
	}{
		{"POST", "/v1/videos", draft(nil)},
		{"PATCH", path(a.create()), `{"title": "once"}`},
		{"DELETE", path(a.create()), nil},
		{"PUT", engaged(uuid.New(), a.create()), `{"liked": true}`},
	} {
		before := a.rows()
		replies := make([]reply, duplicates)
		var wg sync.WaitGroup
		for i := range replies {
			wg.Go(func() {
				replies[i] = a.patient(request.method, request.target, request.body, "Idempotency-Key", "duplicate")
			})
		}
		wg.Wait()
		first := 0
		for _, r := range replies {
			if r.Status >= 300 || !bytes.Equal(r.Raw, replies[0].Raw) {
				t.Errorf("%s: %d %s", request.method, r.Status, r.Raw)
			}
			if r.Header.Get("Idempotency-Replayed") == "" {
				first++
			}
		}
		after := a.rows()
		if first != 1 || after.Outbox != before.Outbox+1 || after.Keys != before.Keys+1 {
			t.Errorf("%s: %d answers are no replay; rows %+v became %+v", request.method, first, before, after)
		}
	}
}

// TestAConcurrentDuplicateWaits holds the first request inside its transaction.
func TestAConcurrentDuplicateWaits(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := Video{Title: "t", UploaderID: aggregate.NewID()}
	w := aggregate.WriteOptions{Caller: everyone, Keys: []string{"k"}}
	r, err := idempotency.NewRequest("", "POST /v1/videos", w.Keys, map[string]any{"title": v.Title, "uploader_id": v.UploaderID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tx := pgtest.Begin(t, a.db)
	batch := &pgx.Batch{}
	if err := r.Remember(batch, Video{Title: "first"}); err != nil {
		t.Fatal(err)
	}
	if err := tx.SendBatch(t.Context(), batch).Close(); err != nil {
		t.Fatal(err)
	}
	duplicate := make(chan aggregate.Result[Video], 1)
	go func() {
		answer, err := a.service.Create(context.WithoutCancel(t.Context()), v, w, nil)
		if err != nil {
			t.Error(err)
		}
		duplicate <- answer
	}()
	pgtest.Until(a, "the duplicate waits", func() bool {
		var waiting int
		err := a.admin.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity
			 WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		return err == nil && waiting > 0
	})
	pgtest.End(t, tx.Commit)
	if answer := <-duplicate; !answer.Replayed || answer.Value.Title != "first" {
		t.Errorf("got %+v, want the first answer", answer)
	}
	if n := a.rows(); n.Videos != 0 || n.Outbox != 0 {
		t.Errorf("the duplicate left %+v", n)
	}
}

func TestKeysExpire(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	d := draft(nil)
	expire := func() { a.exec(`UPDATE video.idempotency_keys SET created_at = now() - interval '24 hours 1 second'`) }
	first := a.call("POST", "/v1/videos", d, "Idempotency-Key", "k")
	expire()
	again := a.call("POST", "/v1/videos", d, "Idempotency-Key", "k")
	if again.field("video_id") == first.field("video_id") {
		t.Error("POST: an expired key still answers")
	}
	if r := a.call("POST", "/v1/videos", d, "Idempotency-Key", "k"); r.field("video_id") != again.field("video_id") {
		t.Errorf("POST: the key that was used again does not live again: %d %s", r.Status, r.Raw)
	}
	video := first.Header.Get("Location")
	a.call("PATCH", video, `{"title": "a"}`, "Idempotency-Key", "k")
	expire()
	if r := a.call("PATCH", video, `{"title": "b"}`, "Idempotency-Key", "k"); r.field("title") != "b" {
		t.Errorf("PATCH with an expired key: %d %s", r.Status, r.Raw)
	}
	if r := a.call("PATCH", video, `{"title": "b"}`, "Idempotency-Key", "k"); r.Status != http.StatusOK || r.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("PATCH with the key that was used for another request: %d %s", r.Status, r.Raw)
	}
	if n := a.rows(); n.Keys != 2 {
		t.Errorf("%d keys, want the expired ones to be replaced", n.Keys)
	}
}

func TestSweepRemovesExpiredKeysOnly(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.exec(`
		INSERT INTO video.idempotency_keys (principal, operation, key, request_hash, response, created_at)
		SELECT '', 'op', n::text, '', '', CASE WHEN n > 3 THEN now() - interval '25 hours' ELSE now() - interval '23 hours' END
		  FROM generate_series(1, $1) n`, 3+600+1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	beats := make(chan struct{}, 1)
	done := make(chan error, 1)
	go func() {
		done <- idempotency.Sweep(ctx, a.db, slog.New(slog.DiscardHandler), func() { beats <- struct{}{} })
	}()
	<-beats
	pgtest.Until(a, "only the 3 live keys are left", func() bool { return a.rows().Keys == 3 })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("sweep returned %v", err)
	}
}

func TestKeyHoldsAcrossProtocols(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	overREST := a.call("PATCH", path(v), `{"title": "one"}`, "Idempotency-Key", "k")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "k")
	req := &videov1.UpdateVideoRequest{
		Video:      &videov1.Video{VideoId: v.ID.String(), Title: "one"},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"title"}},
	}
	var header metadata.MD
	resp, err := a.rpc.UpdateVideo(ctx, req, grpc.Header(&header))
	if err != nil || resp.GetConsistencyToken() != overREST.field("consistency_token") ||
		len(header.Get("idempotency-replayed")) != 1 {
		t.Errorf("got %v (%v, header %v), want the answer that REST gave", resp, err, header)
	}
	req.Video.Title = "two"
	_, err = a.rpc.UpdateVideo(ctx, req)
	if status.Code(err) != codes.InvalidArgument || problem.ReasonOf(err) != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("another request with the key: %v", err)
	}
}

// The hash of a request covers the fields that its caller has sent, by name: a release
// with more fields accepts the retries of requests to the release before. The texts
// below are a contract with every release that has stored hashes for less than a day.
func TestTheHashIsOverTheRequestAsSent(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	engagement := engaged(uuid.New(), v)
	for _, tc := range []struct{ method, path, body, hashed string }{
		{"POST", "/v1/videos", `{"title": "t", "uploader_id": "6A1B52A9-33cd-4b1c-8e52-2b7a3a4b8f10", "description": ""}`,
			`{"title":"t","uploader_id":"6a1b52a9-33cd-4b1c-8e52-2b7a3a4b8f10"}`},
		{"POST", "/v1/videos", `{"title": "t", "uploader_id": "6a1b52a9-33cd-4b1c-8e52-2b7a3a4b8f10", "published_at": "0001-01-01T00:00:00Z"}`,
			`{"published_at":"0001-01-01T00:00:00Z","title":"t","uploader_id":"6a1b52a9-33cd-4b1c-8e52-2b7a3a4b8f10"}`},
		{"PATCH", path(v), `{"published_at": "2026-03-04T06:06:07.1234567+01:00", "duration_seconds": 0, "description": null}`,
			`{"description":"","duration_seconds":0,"published_at":"2026-03-04T05:06:07.123456Z"}`},
		{"PATCH", path(v), `{"published_at": null}`, `{"published_at":null}`},
		{"PUT", engagement, `{"watched_seconds": 7, "liked": false}`, `{"watched_seconds":7}`},
		{"DELETE", engagement, ``, `{}`},
		{"DELETE", path(v), `{"reason": "r"}`, `{"reason":"r"}`},
	} {
		key := uuid.NewString()
		var body any
		if tc.body != "" {
			body = tc.body
		}
		if r := a.call(tc.method, tc.path, body, "Idempotency-Key", key); r.Status >= 300 {
			t.Fatalf("%s %s: %d %s", tc.method, tc.body, r.Status, r.Raw)
		}
		var operation string
		var hash []byte
		err := a.admin.QueryRow(t.Context(), `SELECT operation, request_hash FROM video.idempotency_keys WHERE key = $1`, key).Scan(&operation, &hash)
		if err != nil || operation != tc.method+" "+tc.path {
			t.Errorf("operation %q (%v)", operation, err)
		}
		if want := sha256.Sum256([]byte(tc.hashed)); !bytes.Equal(hash, want[:]) {
			t.Errorf("%s %s: the hash is not that of %s", tc.method, tc.body, tc.hashed)
		}
	}
}

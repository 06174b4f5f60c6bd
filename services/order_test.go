package services_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"example.com/lockstep/internal/porttest"
)

// These tests show the rows of "The order of the parts" in deploy/RELEASE.md that a released binary alone can show.

// A binary that gets a flag of a later release ends at its start, so that its revision gets no traffic.
func TestAFlagOfALaterReleaseEndsABinary(t *testing.T) {
	t.Parallel()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, sharedBroker(t))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, env := range map[string][]string{
		"video":   {"DATABASE_URL=" + w.pg.VideoURL},
		"catalog": {"DATABASE_URL=" + w.pg.CatalogURL, "VIDEO_SERVICE_ADDR=" + w.videoAddr},
	} {
		cmd := exec.CommandContext(ctx, filepath.Join(binaries, name), "serve", "-of-a-later-release=1")
		cmd.Env = append(cmd.Environ(), append(env, "GOOGLE_CLOUD_PROJECT="+w.project, "PORT="+strconv.Itoa(porttest.Port(t)))...)
		out, err := cmd.CombinedOutput()
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok || ended.ExitCode() != 2 || !strings.Contains(string(out), "-of-a-later-release") {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

// video lacks the RPCs that catalog calls, as an earlier release of video would. Reads of the projection go on. Reads that need
// video fail, and a gap stays held. With the later release of video the gap is repaired.
func TestAnOwnerWithoutAnRPCCountsAsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	owner, earlier := w.videoAddr, grpc.NewServer()
	lis, err := net.Listen("tcp", owner)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = earlier.Serve(lis) }()
	defer earlier.Stop()
	w.startCatalog(t)
	w.videoAddr = porttest.Addr(t) // where the clients write
	stop := w.startMutedVideo(t)
	gap := w.create(t, "a gap")
	if _, err := w.db.Exec(t.Context(), `UPDATE video.outbox SET published_at = now()`); err != nil { // it was lost
		t.Fatal(err)
	}
	stop()
	w.startVideo(t)
	whole := w.create(t, "whole")
	gap = w.update(t, gap, fields{"title": "behind a gap"})
	w.reaches(t, whole)
	const held = `SELECT count(*) FROM catalog.inbox WHERE status = 'held' AND last_error LIKE '%Unimplemented%'`
	eventually(t, "the gap is held", func() bool { return query[int](t, w, held)[0] == 1 })
	if a := w.read(t, gap.ID, gap.Token, 0); a.code != http.StatusServiceUnavailable {
		t.Errorf("a read that needs video: %d %s", a.code, a.Reason)
	}
	earlier.Stop()
	w.serveVideo(t, owner, w.project)
	w.reaches(t, gap)
	if n := query[int](t, w, `SELECT count(*) FROM catalog.inbox WHERE status = 'dead'`)[0]; n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// A release takes a column away that running binaries use. They stay ready, their statements fail, and events wait. With the
// column everything goes on.
func TestAColumnLessFailsTheStatementsOfABinary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	w.startVideo(t)
	w.startCatalog(t)
	before := w.create(t, "before")
	w.reaches(t, before)
	rename := func(table, from, to string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := w.db.Exec(ctx, "ALTER TABLE "+table+" RENAME COLUMN "+from+" TO "+to); err != nil {
			t.Fatal(err)
		}
	}
	rename("catalog.video_projection", "description", "gone")
	late := w.update(t, before, fields{"title": "late"})
	if a := w.read(t, before.ID, "", 0); a.code < 500 || !ready(w.catalogAddr) {
		t.Errorf("catalog answers with %d %s, and is ready: %t", a.code, a.Reason, ready(w.catalogAddr))
	}
	rename("catalog.video_projection", "gone", "description")
	w.reaches(t, late)
	if n := query[int](t, w, `SELECT count(*) FROM catalog.inbox WHERE status = 'dead'`)[0]; n != 0 {
		t.Errorf("%d dead letters", n)
	}
	rename("video.videos", "description", "gone")
	if a := call(t, http.MethodPost, w.videos(""), nil, fields{"uploader_id": uploader, "title": "fails"}); a.code < 500 || !ready(w.videoAddr) {
		t.Errorf("video answers with %d %s, and is ready: %t", a.code, a.Reason, ready(w.videoAddr))
	}
	rename("video.videos", "gone", "description")
	w.reaches(t, w.create(t, "after"))
}

package operator

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// rowsIn are two types of aggregates with ids of one table, so that a type has to be named.
func rowsIn(db *pgxpool.Pool) map[string]*reconcile.Table {
	videos := reconcile.NewTable(db, "videos", []string{"video_id"}, "", outbox.PresentEpoch)
	return map[string]*reconcile.Table{"video": videos, "twin": videos, "pair": reconcile.NewTable(db, "none", []string{"a", "b"}, "", "1")}
}

// row writes the row of a video at this version.
func (b *bench) row(t *testing.T, id string, version int64) {
	t.Helper()
	_, err := b.video.Exec(t.Context(), `
		INSERT INTO videos (video_id, uploader_id, title, version, created_at, updated_at) VALUES ($1, $1, 'a title', $2, now(), now())`, id, version)
	if err != nil {
		t.Fatal(err)
	}
}

func TestOutboxAllow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := uuid.NewString()
	b.append(t, id, 2)
	b.row(t, id, 2)
	var result struct {
		Allowed    bool
		RowVersion int64 `json:"row_version"`
		Missing    int64
		Note       string
		Newest     outboxEvent
	}
	line := "outbox allow --type video " + id
	const holes = `SELECT count(*) FROM outbox WHERE NOT gapless`
	if _, stderr := b.run(t, 1, line); !strings.Contains(stderr, "the row is at version 2, and the outbox at version 2") {
		t.Errorf("without a hole: %s", stderr)
	}
	pgtest.Exec(t, b.video, `UPDATE videos SET version = 4 WHERE video_id = $1`, id)
	b.json(t, 0, line, &result)
	if result.Allowed || result.RowVersion != 4 || result.Missing != 2 || result.Newest.Version != 2 || result.Note != leavesGap || count(t, b.video, holes) != 0 {
		t.Errorf("dry run: %+v", result)
	}
	if stdout, _ := b.run(t, 0, line); !strings.Contains(stdout, "refuses version 5") || !strings.Contains(stdout, unchanged) || count(t, b.video, holes) != 0 {
		t.Errorf("dry run: %s", stdout)
	}
	b.run(t, 2, line+" --yes") // without --why
	b.json(t, 0, line+" --yes --why lost", &result)
	if !result.Allowed || count(t, b.video, holes) != 1 {
		t.Errorf("confirmed: %+v", result)
	}
	if n := count(t, b.video, `SELECT count(*) FROM operator_actions WHERE action = 'allow' AND actor = 'ada' AND why = 'lost'`); n != 1 {
		t.Error("the audit table does not say who and why")
	}
	if _, stderr := b.run(t, 1, line+" --yes --why again"); !strings.Contains(stderr, "allowed already, behind version 2") {
		t.Errorf("a second time: %s", stderr)
	}
}

func TestOutboxAllowRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := uuid.NewString()
	b.append(t, id, 1)
	b.row(t, id, 3)
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"":                                    {2, "want the id of one aggregate"},
		id + " " + id:                         {2, "want the id of one aggregate"},
		id:                                    {2, "is the id of a video and of a twin"},
		id + " --type other":                  {2, "want one of video, twin, pair"},
		id + " --type pair":                   {1, id + ": there is no row of this id"},
		uuid.NewString():                      {1, "there is no row of this id"},
		"some-text":                           {1, "some-text: there is no row of this id"},
		id + " --type twin":                   {1, "the outbox has no event of it"},
		"--type video " + strings.ToUpper(id): {1, "ids have small letters"},
	} {
		if _, stderr := b.run(t, want.code, "outbox allow "+line); !strings.Contains(stderr, want.text) {
			t.Errorf("allow %s: %s", line, stderr)
		}
	}
}

// Some aggregates can be put again after their deletion, and their versions go on. So a hole behind a deletion is
// allowed, with a note.
func TestOutboxAllowBehindADeletion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := uuid.NewString()
	b.append(t, id, 1)
	b.row(t, id, 2)
	pgtest.Exec(t, b.video, `UPDATE videos SET deleted_at = now() WHERE video_id = $1`, id)
	var result struct {
		Allowed bool
		Note    string
	}
	b.json(t, 0, "outbox allow --yes --why lost --type video "+id, &result)
	if !result.Allowed || result.Note != leavesGap+" "+ofDeleted {
		t.Errorf("%+v", result)
	}
}

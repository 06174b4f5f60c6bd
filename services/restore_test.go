package services_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/services/catalog"
)

// restoreBlock finds the commands for a restore of one schema in the module's README,
// which deploy/restore_test.go tests.
var restoreBlock = regexp.MustCompile("(?s)<!-- tested: deploy/restore_test.go restore -->\n *```sh\n(.*?)```")

// backup is a copy of the database as it was at one time.
type backup struct{ url, bin, dir string }

// backUp copies the database while the services run.
func (w *world) backUp(t *testing.T) backup {
	t.Helper()
	b := backup{dir: t.TempDir()}
	b.bin = pgtest.Clients(t, w.pg.Admin)
	name := "backup_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	config, err := pgx.ParseConfig(w.pg.Admin)
	if err != nil {
		t.Fatal(err)
	}
	b.url = strings.Replace(w.pg.Admin, "/"+config.Database, "/"+name, 1)
	w.exec(t, `CREATE DATABASE `+name)
	t.Cleanup(func() {
		if _, err := w.db.Exec(context.Background(), `DROP DATABASE `+name); err != nil {
			t.Error(err)
		}
	})
	b.run(t, `pg_dump --format=custom --file=backup.dump "$HERE" && pg_restore --exit-on-error --dbname="$COPY" backup.dump`, "HERE="+w.pg.Admin)
	return b
}

// run runs a script of a person with Postgres's programs.
func (b backup) run(t *testing.T, script string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), append(env, "PATH="+b.bin+":"+os.Getenv("PATH"), "COPY="+b.url)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// restore replaces schemas by those of the backup.
func (w *world) restore(t *testing.T, b backup, schemas ...string) {
	t.Helper()
	text, err := os.ReadFile("../deploy/terraform/README.md")
	if err != nil {
		t.Fatal(err)
	}
	block := restoreBlock.FindStringSubmatch(string(text))
	if block == nil {
		t.Fatal("the README has no commands for a restore")
	}
	for _, schema := range schemas {
		b.run(t, block[1], "HERE="+w.pg.Admin, "SCHEMA="+schema)
	}
}

// seek is what gcloud does for a person.
func (w *world) seek(t *testing.T, subscription string, to time.Time) {
	t.Helper()
	_, err := w.broker.subscriber.Seek(t.Context(), &pubsubpb.SeekRequest{
		Subscription: "projects/" + w.project + "/subscriptions/" + subscription,
		Target:       &pubsubpb.SeekRequest_Time{Time: timestamppb.New(to)},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRestoreOfTheOwner: a backup is restored, and an epoch begun. Tokens of the lost
// writes are answered as docs/design.md has it, sessions go on, versions that had been
// assigned before are assigned to other changes, and the read model follows.
func TestRestoreOfTheOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	stopVideo, stopCatalog := w.startVideo(t), w.startCatalog(t)
	kept, removed := w.create(t, "kept"), w.create(t, "removed")
	kept = w.update(t, kept, fields{"title": "kept still"})
	w.reaches(t, kept)
	w.reaches(t, removed)
	b := w.backUp(t)

	lost, vanished, gone := w.update(t, kept, fields{"title": "lost"}), w.create(t, "vanished"), w.remove(t, removed)
	lost = w.update(t, lost, fields{"title": "lost, too"})
	w.reaches(t, lost)
	w.reaches(t, vanished)
	w.reaches(t, gone)
	stopCatalog()
	stopVideo()

	w.restore(t, b, "video", "catalog")
	w.seek(t, catalog.Subscription, time.Now())
	w.seek(t, catalog.EngagementSubscription, time.Now())
	o.types(t, "epoch", "NOTHING=", "Nothing was changed", "The epoch is")
	w.startVideo(t)
	w.startCatalog(t)

	// The owner's state is all that there is of what the tokens name.
	w.ofOwner(t, kept.ID, lost.Token).is(t, http.StatusOK, kept.Version)
	w.ofOwner(t, removed.ID, gone.Token).is(t, http.StatusOK, removed.Version)
	w.read(t, kept.ID, kept.Token, 0).is(t, http.StatusOK, kept.Version).from(t, "projection")
	// Only lost writes had made it. The new epoch says so.
	w.read(t, vanished.ID, vanished.Token, 0).is(t, http.StatusNotFound, 0)
	w.read(t, vanished.ID, "", 0).is(t, http.StatusNotFound, 0)
	header := http.Header{"Consistency-Token": {vanished.Token}, "Prefer": {"wait=0"}}
	call(t, http.MethodGet, "http://"+w.catalogAddr+"/v1/videos", header, nil).is(t, http.StatusOK, 0)

	// Versions of lost writes belong to other changes now.
	again := w.update(t, kept, fields{"title": "another"})
	if again.Version != kept.Version+1 {
		t.Errorf("version %d after the restore, want %d again", again.Version, kept.Version+1)
	}
	if a := w.reaches(t, again); a.Title != "another" {
		t.Errorf("the read model shows %q", a.Title)
	}
	w.read(t, kept.ID, lost.Token, 0).is(t, http.StatusOK, again.Version).from(t, "projection")
	w.read(t, kept.ID, again.Token, 0).is(t, http.StatusOK, again.Version).from(t, "projection")
	w.reaches(t, w.remove(t, removed))
	same := query[int64](t, w, `
		SELECT count(*) FROM video.videos v FULL JOIN catalog.video_projection p USING (video_id)
		 WHERE (v.version, v.last_event_id, v.deleted_at) IS DISTINCT FROM (p.version, p.last_event_id, p.deleted_at)`)
	if same[0] != 0 {
		t.Errorf("%d rows differ between owner and read model", same[0])
	}
}

// TestLostWritesAreStillAtTheBroker: after a restore of the owner, the messages of lost writes come
// to the read model by a replay, and as a dead letter. The rows that have not changed since take the
// replayed ones. What the runbook says then leaves nothing of them.
func TestLostWritesAreStillAtTheBroker(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	stopVideo, stopCatalog := w.startVideo(t), w.startCatalog(t)
	changed, removed, poisoned := w.create(t, "changed"), w.create(t, "removed"), w.create(t, "poisoned")
	for _, a := range []answer{changed, removed, poisoned} {
		w.reaches(t, a)
	}
	b := w.backUp(t)
	w.reaches(t, w.update(t, changed, fields{"title": "lost"}))
	w.reaches(t, w.remove(t, removed))
	w.exec(t, `ALTER TABLE catalog.video_projection ADD CONSTRAINT alive CHECK (title <> 'lost, too')`)
	w.update(t, poisoned, fields{"title": "lost, too"})
	eventually(t, "the event is dead", func() bool { return w.inbox(t, poisoned.ID, "dead") == 1 })
	id := query[string](t, w, `SELECT event_id::text FROM catalog.inbox WHERE status = 'dead'`)[0]
	stopCatalog()
	stopVideo()
	w.restore(t, b, "video", "catalog")
	w.seek(t, catalog.Subscription, time.Now())
	o.types(t, "epoch", "NOTHING=", "The epoch is")
	w.startVideo(t)
	w.startCatalog(t)

	o.types(t, "discard", "ID="+id, "discarded")
	w.seek(t, catalog.Subscription, time.Now().Add(-time.Hour))
	eventually(t, "the replay has brought lost writes back", func() bool {
		return w.read(t, changed.ID, "", 0).Title == "lost" && w.read(t, removed.ID, "", 0).code == http.StatusGone
	})
	eventually(t, "the inbox has all replayed events", func() bool {
		return w.inbox(t, changed.ID, "done")+w.inbox(t, removed.ID, "done")+w.inbox(t, poisoned.ID, "done") == 6
	})
	o.types(t, "recompare", "NOTHING=")
	for _, a := range []answer{changed, removed, poisoned} {
		w.read(t, a.ID, "", 0).is(t, http.StatusOK, 1)
	}
	if out, err := o.shell(t, "catalog dlq list --json", "NOTHING=").Output(); err != nil || !strings.Contains(string(out), `"dead_letters":[]`) {
		t.Errorf("dead letters are left: %v %s", err, out)
	}
}

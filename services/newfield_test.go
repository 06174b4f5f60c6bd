package services_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/pgtest"
)

// edit is an edit of a file: the text stands after the anchor, or after its line.
type edit struct{ file, anchor, text string }

// locale is the first chapter of docs/adapt.md, in short: a field of videos. OpenAPI is
// left out: no service reads it here.
var locale = []edit{
	{"migrations/video/09000_locale.sql", "", addLocale("video.videos")},
	{"migrations/catalog/09000_locale.sql", "", addLocale("catalog.video_projection")},
	{"proto/video/v1/video_service.proto", "\nmessage Video {\n", "  string locale = 20;\n"},
	{"proto/video/events/v1/events.proto", "\nmessage VideoCreated {\n", "  string locale = 20;\n"},
	{"proto/video/events/v1/events.proto", "\nmessage VideoUpdated {\n", "  optional string locale = 20;\n"},
	{"proto/catalog/v1/catalog_service.proto", "\nmessage Video {\n", "  string locale = 20;\n"},
	{"services/catalog/videos.go", "type Video struct {\n", "\tLocale string `json:\"locale\"`\n"},
	{"services/catalog/videos.go", "v = Video{\n\t\t\t", "Locale: p.GetLocale(), "},
	{"services/catalog/videos.go", "bool { return slices.Contains(p.GetCleared(), field) }\n", "\tif p.Locale != nil {\n\t\tv.Locale = p.GetLocale()\n\t}\n"},
	{"services/catalog/videos.go", "return Video{\n\t\tID: videoID, ", "Locale: p.GetLocale(), "},
	{"services/catalog/store_videos.go", "duration_seconds, published_at, ", "locale, "},
	{"services/catalog/store_videos.go", `"uuid, uuid, text, text, bigint, timestamptz`, ", text"},
	{"services/catalog/store_videos.go", "func(v Video) *time.Time { return v.PublishedAt })", ",\n\t\tcolumn(steps, func(v Video) string { return v.Locale })"},
	{"services/catalog/grpc.go", "return &catalogv1.Video{\n\t\t", "Locale: v.Locale, "},
	{"proto/video/v1/video_service.proto", "\nmessage CreateVideoRequest {\n", "  string locale = 20;\n"},
	{"services/video/fields.go", "type Video struct {\n", "\tLocale string `json:\"locale\"`\n"},
	{"services/video/fields.go", "var fields = []string{", `"locale", `},
	{"services/video/fields.go", "(v Video) value(name string) any {\n\tswitch name {\n", "\tcase \"locale\":\n\t\treturn v.Locale\n"},
	{"services/video/fields.go", "changed, name)\n\t\tswitch name {\n", "\t\tcase \"locale\":\n\t\t\tv.Locale = to.Locale\n"},
	{"services/video/rest.go", "type restBody struct {\n", "\tLocale rest.Optional[string] `json:\"locale\"`\n"},
	{"services/video/rest.go", "v = Video{", "Locale: b.Locale.Value, "},
	{"services/video/rest.go", "\ttake(\"title\", b.Title.Set, b.Title.Null)\n", "\ttake(\"locale\", b.Locale.Set, b.Locale.Null)\n"},
	{"services/video/grpc.go", "type grpcBody interface {\n", "\tGetLocale() string\n"},
	{"services/video/grpc.go", "v := Video{", "Locale: b.GetLocale(), "},
	{"services/video/grpc.go", "return &videov1.Video{\n\t\t", "Locale: v.Locale, "},
	{"services/video/events.go", "&eventsv1.VideoCreated{\n\t\t\t", "Locale: v.Locale, "},
	{"services/video/events.go", "\t\tswitch name {\n", "\t\tcase \"locale\":\n\t\t\tp.Locale = &v.Locale\n"},
}

func addLocale(table string) string {
	return "-- +goose Up\nALTER TABLE " + table + " ADD COLUMN locale text NOT NULL DEFAULT '';\n" +
		"-- +goose Down\nALTER TABLE " + table + " DROP COLUMN locale;\n"
}

func (e edit) apply(t *testing.T, dir string) {
	t.Helper()
	name, text := filepath.Join(dir, e.file), ""
	if e.anchor != "" {
		before, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if text = string(before); strings.Count(text, e.anchor) != 1 {
			t.Fatalf("%s has %q %d times", e.file, e.anchor, strings.Count(text, e.anchor))
		}
	}
	if err := os.WriteFile(name, []byte(strings.Replace(text, e.anchor, e.anchor+e.text, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// newRelease is a copy of the repository with the field, and returns the folder of its
// binaries.
func newRelease(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sh := func(script string, env ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Dir, cmd.Env = "..", append(os.Environ(), append(env, "NEW="+dir)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	sh(`git ls-files --cached --others --exclude-standard | tar -cf - -T - | tar -xf - -C "$NEW"`)
	for _, e := range locale {
		e.apply(t, dir)
	}
	sh(`make -C "$NEW" generate BIN="$PWD/build/bin" && cd "$NEW" && go build -buildvcs=false -o bin/ ./services/video/cmd/video ./services/catalog/cmd/catalog ./cmd/dev`)
	return filepath.Join(dir, "bin")
}

// The writer is released before the reader, which the documents advise against: an older
// catalog applies the events of a newer video. Nothing is lost: the newer catalog brings
// the rows up to date by itself.
func TestANewFieldReachesAnOlderReader(t *testing.T) {
	if os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("LOCKSTEP_FULL=1 builds a second release")
	}
	const videos, changes = 512, 20 // 10,000 events with the field
	bin := newRelease(t)
	w := newWorld(t, startBroker(t, broker.Local))
	for _, schema := range [][2]string{{"video", "migrate"}, {"catalog", "migrate"}, {"dev", "provision"}} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, schema[0]), schema[1])
		cmd.Env = append(os.Environ(), "DATABASE_URL="+w.pg.Admin, "PUBSUB_EMULATOR_HOST="+w.broker.addr, "GOOGLE_CLOUD_PROJECT="+w.project)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", schema, err, out)
		}
	}
	writer := w.launch(t, exec.Command(filepath.Join(bin, "video"), "serve"), w.videoAddr, "DATABASE_URL="+w.pg.VideoURL)
	reader := w.spawnCatalog(t, w.catalogAddr)
	writer.ready(t)
	reader.ready(t)
	w.writeLocales(t, videos, changes)

	behind := `SELECT count(*) FROM video.videos v LEFT JOIN catalog.video_projection p USING (video_id) WHERE p.version IS DISTINCT FROM v.version`
	w.becomes(t, behind, 0)
	if n := w.count(t, differing); n != videos {
		t.Fatalf("%d of %d rows differ before the reader's release: the field is in none of its events", n, videos)
	}
	if n := w.count(t, `SELECT count(*) FROM catalog.video_projection WHERE incomplete`); n != videos {
		t.Errorf("%d of %d rows are incomplete", n, videos)
	}
	if code := reader.terminate(t); code != 0 {
		t.Errorf("the old catalog ended with %d", code)
	}
	released := w.launch(t, exec.Command(filepath.Join(bin, "catalog"), "serve"), w.catalogAddr,
		"DATABASE_URL="+w.pg.CatalogURL, "VIDEO_SERVICE_ADDR="+w.videoAddr)
	released.ready(t)
	w.becomes(t, `SELECT count(*) FROM catalog.video_projection WHERE incomplete`, 0)
	t.Logf("%d events, %d rows: %d differ", videos*changes, videos, w.count(t, differing))
	if n := w.count(t, differing); n != 0 {
		t.Errorf("%d rows differ", n)
	}
	_ = writer.child.Stop(syscall.SIGTERM, patience)
}

// differing counts the rows of the read model that differ from their owner's.
const differing = `
	SELECT count(*) FROM video.videos v FULL JOIN catalog.video_projection p USING (video_id)
	 WHERE (v.title, v.description, v.duration_seconds, v.locale, v.version, v.last_event_id, v.deleted_at)
	       IS DISTINCT FROM (p.title, p.description, p.duration_seconds, p.locale, p.version, p.last_event_id, p.deleted_at)`

func (w *world) count(t *testing.T, sql string) (n int) {
	t.Helper()
	return pgtest.Value[int](t, w.db, sql)
}

func (w *world) becomes(t *testing.T, sql string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is %d", sql, n), func() bool { return w.count(t, sql) == n })
}

// writeLocales creates videos, and changes the locale of each: changes events each.
func (w *world) writeLocales(t *testing.T, videos, changes int) {
	t.Helper()
	const writers = 16
	var all sync.WaitGroup
	for range writers {
		c := newClient(t, w.videoAddr)
		all.Go(func() {
			for range (videos + writers - 1) / writers {
				a, err := c.do(t.Context(), http.MethodPost, "/v1/videos", uuid.NewString(), fields{"uploader_id": uploader, "title": "0", "locale": "x0"})
				for i := 1; i < changes && err == nil; i++ {
					_, err = c.do(t.Context(), http.MethodPatch, "/v1/videos/"+a.ID, uuid.NewString(), fields{"locale": fmt.Sprint("x", i)})
				}
				if err != nil || a.code != http.StatusCreated {
					t.Errorf("write: %d, %v", a.code, err)
				}
			}
		})
	}
	all.Wait()
}

package services_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/topics"
)

var runbookBlock = regexp.MustCompile("(?s)<!-- tested: services/(?:runbook|rebuild|erasure)_test.go ([\\w-]+) -->\n```sh\n(.*?)```")

// operator is a person who executes the runbook's commands, one block at a time.
type operator struct {
	*world
	dir    string // has the commands
	blocks map[string]string
}

func (w *world) operator(t *testing.T) *operator {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("not installed: bash")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	o := &operator{world: w, dir: t.TempDir(), blocks: map[string]string{}}
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range runbookBlock.FindAllStringSubmatch(string(text), -1) {
		o.blocks[m[1]] = m[2]
	}
	// Each service's job has its own environment.
	for command, url := range map[string]string{"video": w.pg.VideoURL, "catalog": w.pg.CatalogURL} {
		script := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = rebuild ] && url='%s' || url='%s'\nDATABASE_URL=\"$url\" exec '%s' \"$@\"\n",
			w.pg.Admin, url, filepath.Join(binaries, command)) // a rebuild runs as migrate does
		if err := os.WriteFile(filepath.Join(o.dir, command), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// types runs a block of the runbook with a variable set, and returns its output. It
// must succeed, and print each of says.
func (o *operator) types(t *testing.T, block, variable string, says ...string) {
	t.Helper()
	script, ok := o.blocks[block]
	if !ok {
		t.Fatalf("the runbook has no block %q", block)
	}
	out, err := o.shell(t, script, variable).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", block, err, out)
	}
	for _, want := range says {
		if !strings.Contains(string(out), want) {
			t.Errorf("%s does not say %q:\n%s", block, want, out)
		}
	}
}

func (o *operator) shell(t *testing.T, script, variable string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail\n"+script)
	cmd.Env = append(os.Environ(), "PATH="+o.dir+string(filepath.ListSeparator)+os.Getenv("PATH"), variable, "USER=ada",
		"GOOGLE_CLOUD_PROJECT="+o.project, "PUBSUB_EMULATOR_HOST="+o.broker.addr, "VIDEO_SERVICE_ADDR="+o.videoAddr)
	return cmd
}

// park parks a version of a video, as if the broker had refused it an hour ago,
// and returns its event's id.
func (w *world) park(t *testing.T, video string, version int64) (id string) {
	t.Helper()
	return query[string](t, w, `
		UPDATE video.outbox
		   SET parked_at = now() - interval '1 hour', publish_attempts = 5, last_error = 'rpc error: code = InvalidArgument desc = no field 7'
		 WHERE aggregate_id = $1 AND version = $2 AND published_at IS NULL
		RETURNING id::text`, video, version)[0]
}

// TestRunbook runs the runbook's commands in the states that they are for: events are
// parked, then retried and skipped; others are dead, then redriven and discarded.
func TestRunbook(t *testing.T) {
	t.Parallel()
	runbook(t, newWorld(t, sharedBroker(t)))
}

// TestTheQueryOfLocksNamesTheHolder runs the runbook's query while a forgotten session holds a row.
func TestTheQueryOfLocksNamesTheHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	text, err := os.ReadFile("../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sql\n(SELECT a.pid, p.gid AS prepared.*?);\n```").FindSubmatch(text)
	if block == nil {
		t.Fatal("the runbook has no query of locks")
	}
	holders := `SELECT pid::text || ' ' || role || ' ' || modes FROM (` + string(block[1]) + `) AS holders`
	w.seed(t, 1, 0)
	tx := pgtest.Begin(t, w.db)
	defer func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	var want string
	err = tx.QueryRow(t.Context(), `SELECT pg_backend_pid()::text || ' ' || current_user || ' RowShareLock' FROM video.videos FOR UPDATE`).Scan(&want)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if !await(t.Context(), func() bool { got = query[string](t, w, holders); return len(got) > 0 }) || got[0] != want || len(got) != 1 {
		t.Errorf("holders %q, want %q", got, want)
	}
}

func runbook(t *testing.T, w *world) {
	o := w.operator(t)
	w.parkedEvents(t, o)
	w.deadLetters(t, o)
}

func (w *world) parkedEvents(t *testing.T, o *operator) {
	t.Helper()
	mute := w.startMutedVideo(t) // so that nothing has left before it is parked
	w.startCatalog(t)
	retried, skipped := w.create(t, "retried"), w.create(t, "skipped")
	for _, title := range []string{"second", "third"} {
		retried, skipped = w.update(t, retried, fields{"title": title}), w.update(t, skipped, fields{"title": title})
	}
	first, second := w.park(t, retried.ID, 1), w.park(t, skipped.ID, 1)
	mute()
	w.startVideo(t)

	o.types(t, "parked", "EVENT="+first, "no field 7", retried.ID, skipped.ID, first, `"payload"`)
	if a := w.read(t, retried.ID, "", 0); a.code != http.StatusNotFound {
		t.Errorf("a video behind a parked event is answered %d, want 404", a.code)
	}
	// Only the first line, so that one event is left to skip.
	one, _, _ := strings.Cut(o.blocks["retry"], "\n")
	if out, err := o.shell(t, one, "EVENT="+first).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", one, err, out)
	}
	w.reaches(t, retried)
	o.types(t, "where", "EVENT="+first, "published", "consumer", topics.Subscription(topics.Video, topics.Catalog), "done", "read model", retried.ID)
	o.types(t, "skip", "EVENT="+second, "Nothing was changed", "Skipped", "repair themselves from the owner")
	// The second version comes without the first, and is repaired from the owner.
	if a := w.reaches(t, skipped); a.Title != "third" {
		t.Errorf("after a skip the title is %q, want the owner's", a.Title)
	}
	o.types(t, "purge", "NOTHING=", "Nothing was changed", "Removed 0 events")
	o.types(t, "drain", "NOTHING=", "pending  0")

	// In one statement: the relay may claim an event that waits.
	w.exec(t, `UPDATE video.outbox SET published_at = NULL, parked_at = now() - interval '1 hour' WHERE id = $1::uuid`, first)
	o.types(t, "retry", "EVENT="+first, "1 parked events are free", "No parked event matches")
}

// TestAHoleIsAllowed deletes the newest event of a video by hand, as the runbook's entry says. The next
// write is refused, until an operator allows the hole. Then catalog repairs itself.
func TestAHoleIsAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, sharedBroker(t))
	o := w.operator(t)
	mute := w.startMutedVideo(t) // so that the event has not left
	v := w.create(t, "first")
	lost := w.update(t, v, fields{"title": "second"})
	mute()
	w.exec(t, `DELETE FROM video.outbox WHERE aggregate_id = $1 AND version = 2`, v.ID)
	w.startVideo(t)
	w.startCatalog(t)
	if a := call(t, http.MethodPatch, w.videos("/"+v.ID), nil, fields{"title": "third"}); a.code < http.StatusInternalServerError {
		t.Fatalf("a write behind a lost event is answered %d", a.code)
	}
	o.types(t, "allow", "AGGREGATE="+v.ID, "video/"+v.ID+" is at version 2", "VideoCreated of version 1", "Versions without an event: 1.",
		"refuses version 3", "Nothing was changed", "Allowed.")
	third := w.update(t, lost, fields{"title": "third"})
	if a := w.reaches(t, third); a.Title != "third" {
		t.Errorf("the title is %q", a.Title)
	}
	w.update(t, third, fields{"title": "fourth"}) // the event after the hole is followed as any other
}

func (w *world) deadLetters(t *testing.T, o *operator) {
	t.Helper()
	// A read model with a table that refuses a value which the owner allows.
	w.exec(t, `ALTER TABLE catalog.video_projection ADD CONSTRAINT sense_of_humour CHECK (title <> 'dead')`)
	w.publish(t, &pubsubpb.PubsubMessage{Data: []byte("\x0a\x05hello")}) // an Event, as far as the topic's schema goes
	dead := w.create(t, "dead")
	eventually(t, "the event is dead", func() bool { return w.inbox(t, dead.ID, "dead") == 1 })
	var list struct {
		Letters []struct {
			EventID   string `json:"event_id"`
			MessageID string `json:"message_id"`
		} `json:"dead_letters"`
	}
	eventually(t, "both messages are in the dead letters", func() bool {
		out, err := o.shell(t, "catalog dlq list --json", "NOTHING=").Output()
		if err != nil || json.Unmarshal(out, &list) != nil {
			t.Fatalf("list: %v %s", err, out)
		}
		return len(list.Letters) == 2 && list.Letters[0].MessageID != "" && list.Letters[1].MessageID != ""
	})
	nonsense, event := list.Letters[0], list.Letters[1]

	o.types(t, "dead", "ID="+event.EventID, "check constraint", "event_id", dead.ID)
	w.exec(t, `ALTER TABLE catalog.video_projection DROP CONSTRAINT sense_of_humour`)
	o.types(t, "redrive", "NOTHING=", "Nothing was changed", "applied")
	w.reaches(t, dead)
	o.types(t, "discard", "ID="+nonsense.MessageID, "Nothing was changed", "discarded")
	w.exec(t, `UPDATE catalog.video_projection SET title = 'edited' WHERE video_id = $1::uuid`, dead.ID)
	o.types(t, "reconcile", "NOTHING=", "changed 1", dead.ID, "1 repaired, 0 differ still")
	w.exec(t, `DELETE FROM catalog.video_projection WHERE video_id = $1::uuid`, dead.ID)
	o.types(t, "backfill", "NOTHING=", "1 written, finished at", "0 differ")
	out, err := o.shell(t, "catalog dlq list --json", "NOTHING=").Output()
	if err != nil || !strings.Contains(string(out), `"dead_letters":[]`) {
		t.Errorf("dead letters are left: %v %s", err, out)
	}
	if n := query[int64](t, w, `SELECT count(*) FROM catalog.operator_actions WHERE actor = 'ada' AND why <> ''`); n[0] != 3 {
		t.Errorf("%d actions in catalog's audit table, want 3", n[0])
	}
}

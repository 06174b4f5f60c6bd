package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
)

// walked is the contract of the JSON.
type walked struct {
	Postgres string `json:"postgres"`
	PubSub   string `json:"pubsub"`
	Steps    []struct {
		Name             string    `json:"name"`
		VideoID          uuid.UUID `json:"video_id"`
		EventID          uuid.UUID `json:"event_id"`
		Version          int       `json:"version"`
		ConsistencyToken string    `json:"consistency_token"`
		Source           string    `json:"source"`
		CommittedAt      time.Time `json:"committed_at"`
		PublishedAt      time.Time `json:"published_at"`
		AppliedAt        time.Time `json:"applied_at"`
		ReadAt           time.Time `json:"read_at"`
	} `json:"steps"`
}

// checkWalk requires exactly one object with exactly the fields of the
// contract.
func checkWalk(t testing.TB, stdout string) walked {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	var w walked
	if err := decoder.Decode(&w); err != nil {
		t.Fatalf("stdout: %v:\n%s", err, stdout)
	}
	if err := decoder.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		t.Errorf("stdout goes on after the object: %q", stdout)
	}
	var got []string
	ids := map[uuid.UUID]bool{}
	for _, s := range w.Steps {
		got = append(got, fmt.Sprintf("%s %d %s", s.Name, s.Version, s.Source))
		ids[s.VideoID], ids[s.EventID] = true, true
		times := []time.Time{s.CommittedAt, s.PublishedAt, s.AppliedAt, s.ReadAt}
		if s.CommittedAt.IsZero() || !slices.IsSortedFunc(times, time.Time.Compare) {
			t.Errorf("%s: times out of order: %v", s.Name, times)
		}
		if s.ConsistencyToken == "" {
			t.Errorf("%s: no token", s.Name)
		}
	}
	if diff := cmp.Diff([]string{"created 1 projection", "updated 2 projection", "deleted 3 projection"}, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if len(ids) != 4 || ids[uuid.Nil] {
		t.Errorf("want one video and three events, got the ids %v", ids)
	}
	return w
}

func walkOnce(t testing.TB, vars []string, args ...string) walked {
	t.Helper()
	l := command(t, vars, append([]string{"--once", "--json"}, args...)...)
	if code := l.run(t); code != 0 {
		if strings.Contains(l.stderr.String(), "emulator is not installed") {
			t.Skip(l.stderr.String())
		}
		t.Fatalf("exit code %d, stderr:\n%s", code, l.stderr.String())
	}
	return checkWalk(t, l.stdout.String())
}

func TestOnceOnFreshPostgresAndFake(t *testing.T) {
	t.Parallel()
	// These are for other servers, and none of them is on this machine.
	others := []string{
		"PGSERVICE=elsewhere", "PGOPTIONS=-c search_path=elsewhere", "PGTARGETSESSIONATTRS=standby",
		"HTTP_PROXY=http://127.0.0.1:1", "HTTPS_PROXY=http://127.0.0.1:1",
	}
	w := walkOnce(t, others, "--pubsub", "local")
	if !strings.Contains(w.Postgres, "private") || !strings.Contains(w.PubSub, "own Pub/Sub") {
		t.Errorf("chose %q and %q", w.Postgres, w.PubSub)
	}
}

func TestOnceWithoutAuthentication(t *testing.T) {
	t.Parallel()
	walkOnce(t, []string{"DATABASE_URL=" + pairtest.New(t).Admin}, "--pubsub", "local", "--no-auth")
}

func TestOnceOnOfficialEmulator(t *testing.T) {
	t.Parallel()
	w := walkOnce(t, []string{"DATABASE_URL=" + pairtest.New(t).Admin}, "--pubsub", "emulator")
	if !strings.Contains(w.PubSub, "official") {
		t.Errorf("chose %q", w.PubSub)
	}
}

func TestOnceOnRunningServers(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	pool := db.Pool(t, db.Admin)
	pgtest.Exec(t, pool, `CREATE TABLE public.mine AS SELECT 42 AS answer`)
	addr, _ := servePubSub(t)
	vars := []string{"DATABASE_URL=" + db.Admin, "PUBSUB_EMULATOR_HOST=" + addr}
	for range 2 { // the second run finds the resources of the first
		w := walkOnce(t, vars)
		if !strings.Contains(w.Postgres, "DATABASE_URL") || !strings.Contains(w.PubSub, addr) {
			t.Errorf("chose %q and %q", w.Postgres, w.PubSub)
		}
	}
	var answer int
	if err := pool.QueryRow(t.Context(), `SELECT answer FROM public.mine`).Scan(&answer); err != nil || answer != 42 {
		t.Errorf("the user's table: %d, %v", answer, err)
	}
}

func TestWalkThroughForPeople(t *testing.T) {
	t.Parallel()
	l := command(t, []string{"DATABASE_URL=" + pairtest.New(t).Admin}, "--once", "--pubsub", "local")
	if code := l.run(t); code != 0 {
		t.Fatalf("exit code %d, stderr:\n%s", code, l.stderr.String())
	}
	for _, want := range []string{"Postgres", "own Pub/Sub", "created  1", "updated  2", "deleted  3", "projection (410)"} {
		if !strings.Contains(l.stdout.String(), want) {
			t.Errorf("stdout lacks %q:\n%s", want, l.stdout.String())
		}
	}
}

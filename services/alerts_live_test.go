package services_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/local/process"
	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/topics"
)

// faster is by how much the alerts' durations are shortened: a minute is a second.
const faster = 60

var (
	lasting  = regexp.MustCompile(`(?m)^( +for: )(\d+)s$`)
	windows  = regexp.MustCompile(`\[(\d+)([mhd])\]`)
	ageLimit = regexp.MustCompile(`(age_seconds\)? > )(\d+)`)
	units    = map[string]time.Duration{"m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
)

// sooner divides the durations in a rule file by faster: the windows, the limits of ages, and the
// time for which an expression has to hold.
func sooner(rules string) string {
	number := func(digits string) int {
		n, _ := strconv.Atoi(digits) // cannot fail, because the match has digits only
		return n
	}
	rules = lasting.ReplaceAllStringFunc(rules, func(found string) string {
		m := lasting.FindStringSubmatch(found)
		return fmt.Sprintf("%s%ds", m[1], number(m[2])/faster)
	})
	rules = windows.ReplaceAllStringFunc(rules, func(found string) string {
		m := windows.FindStringSubmatch(found)
		return fmt.Sprintf("[%dms]", (time.Duration(number(m[1])) * units[m[2]] / faster).Milliseconds())
	})
	return ageLimit.ReplaceAllStringFunc(rules, func(found string) string {
		m := ageLimit.FindStringSubmatch(found)
		return fmt.Sprintf("%s%g", m[1], float64(number(m[2]))/faster)
	})
}

// TestRulesForFaults divides all durations, and nothing else.
func TestRulesForFaults(t *testing.T) {
	t.Parallel()
	got := sooner("        expr: \"max(outbox_oldest_pending_age_seconds) > 60 and " +
		"sum(increase(http_total{code=~\\\"5..\\\"}[1h])) / sum(rate(b[1d])) > 10\"\n        for: 120s\n")
	want := "        expr: \"max(outbox_oldest_pending_age_seconds) > 1 and " +
		"sum(increase(http_total{code=~\\\"5..\\\"}[60000ms])) / sum(rate(b[1440000ms])) > 10\"\n        for: 2s\n"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// watched is a world whose services run as they are deployed, with a Prometheus that looks at
// them twice a second.
type watched struct {
	*world

	o              *operator
	api            string // Prometheus
	second         string // another instance of video
	video, catalog *spawned
}

func watch(t *testing.T) *watched {
	t.Helper()
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is missing: it is in Debian's package prometheus")
	}
	w := &watched{world: newWorld(t, startBroker(t, broker.Local)), second: porttest.Addr(t)}
	w.o = w.operator(t)
	w.video, w.catalog = w.spawnVideo(t, w.videoAddr), w.spawnCatalog(t, w.catalogAddr)
	w.video.ready(t)
	w.catalog.ready(t)
	w.spawnVideo(t, w.second).ready(t)

	dir, addr := t.TempDir(), porttest.Addr(t)
	w.api = "http://" + addr + "/api/v1"
	config := fmt.Sprintf("global: {scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}\nrule_files: [rules.yaml]\n"+
		"scrape_configs:\n  - job_name: pair\n    static_configs:\n      - targets: [%q, %q, %q]\n", w.videoAddr, w.second, w.catalogAddr)
	rules, err := os.ReadFile("../deploy/observability/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"prometheus.yaml": config, "rules.yaml": sooner(string(rules))} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	running, err := process.Start(exec.Command(prometheus, "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr), syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Stop(syscall.SIGTERM, patience); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(running.Output())
		}
	})
	eventually(t, "Prometheus sees three processes", func() bool {
		select {
		case <-running.Done():
			t.Fatalf("prometheus ended: %s", running.Output())
		default:
		}
		return strings.Count(w.ask("/query?query=up==1"), `"instance"`) == 3
	})
	return w
}

// ask is an answer of Prometheus; it is empty until there is one.
func (w *watched) ask(path string) string {
	res, err := http.Get(w.api + path)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	var answer struct {
		Data json.RawMessage `json:"data"`
	}
	if json.NewDecoder(res.Body).Decode(&answer) != nil {
		return ""
	}
	return string(answer.Data)
}

// firing are the names of the alerts that fire.
func (w *watched) firing() (names []string) {
	var now struct {
		Alerts []struct {
			State  string            `json:"state"`
			Labels map[string]string `json:"labels"`
		} `json:"alerts"`
	}
	if json.Unmarshal([]byte(w.ask("/alerts")), &now) != nil {
		return nil
	}
	for _, a := range now.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// fault has alerts fire by a fault, and end by its cure.
func (w *watched) fault(t *testing.T, alerts []string, fault, cure func()) {
	t.Helper()
	for _, name := range alerts {
		if slices.Contains(w.firing(), name) {
			t.Errorf("%s fires before the fault", name)
		}
	}
	fault()
	for _, name := range alerts {
		eventually(t, name+" fires", func() bool { return slices.Contains(w.firing(), name) })
	}
	cure()
	for _, name := range alerts {
		eventually(t, name+" ends", func() bool { return !slices.Contains(w.firing(), name) })
	}
}

// TestAlertsInAFault has a Prometheus look at the pair, with the rules of
// deploy/observability/rules.yaml in which a minute is a second. Each fault is a real one, each
// alert fires, and ends with what its entry of the runbook says.
func TestAlertsInAFault(t *testing.T) {
	t.Parallel()
	w := watch(t)
	v := w.create(t, "First cut")
	w.reaches(t, v)
	v = w.aTopicIsMissing(t, v)
	v = w.theDatabaseRefusesTheConsumer(t, v)
	if os.Getenv("LOCKSTEP_FULL") == "" {
		return
	}
	v = w.anEventIsRefused(t, v)
	v = w.aRowIsLocked(t, v)
	w.anEventIsDead(t)
	w.theOwnerIsAway(t, v)
	w.fault(t, []string{"ConsumerMissing"}, func() { w.catalog.kill(t) }, func() { w.spawnCatalog(t, w.catalogAddr).ready(t) })
}

func (w *watched) aTopicIsMissing(t *testing.T, v answer) answer {
	t.Helper()
	w.fault(t, []string{"TopicPaused", "EventsNotLeaving"}, func() {
		topic := "projects/" + w.project + "/topics/" + topics.Video
		if _, err := w.broker.publisher.DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: topic}); err != nil {
			t.Fatal(err)
		}
		subscription := "projects/" + w.project + "/subscriptions/" + topics.Subscription(topics.Video, topics.Catalog)
		if _, err := w.broker.subscriber.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: subscription}); err != nil {
			t.Fatal(err)
		}
		v = w.update(t, v, fields{"title": "Without a topic"})
	}, func() { w.broker.provision(t, w.project) })
	return v
}

func (w *watched) theDatabaseRefusesTheConsumer(t *testing.T, v answer) answer {
	t.Helper()
	w.fault(t, []string{"ConsumerHeldUp"}, func() {
		w.exec(t, `REVOKE INSERT ON catalog.inbox FROM catalog_service`)
		v = w.update(t, v, fields{"title": "Without a grant"})
	}, func() { w.exec(t, `GRANT INSERT ON catalog.inbox TO catalog_service`) })
	w.reaches(t, v)
	return v
}

func (w *watched) anEventIsRefused(t *testing.T, v answer) answer {
	t.Helper()
	w.fault(t, []string{"PublishesRefused", "EventsParked"}, func() {
		w.broker.setFaults(t, `{"kind": "reject", "key": "`+v.ID+`"}`)
		v = w.update(t, v, fields{"title": "Refused"})
	}, func() {
		w.broker.setFaults(t, "")
		event := query[string](t, w.world, `SELECT id::text FROM video.outbox WHERE parked_at IS NOT NULL`)[0]
		w.o.types(t, "parked", "EVENT="+event, event, v.ID)
		w.o.types(t, "retry", "EVENT="+event)
	})
	w.reaches(t, v)
	return v
}

func (w *watched) aRowIsLocked(t *testing.T, v answer) answer {
	t.Helper()
	var locker uint32
	w.fault(t, []string{"AggregatesBlocked"}, func() {
		tx := pgtest.Begin(t, w.db)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }) // its session has been ended
		pgtest.Exec(t, tx, `SELECT FROM catalog.video_projection WHERE video_id = $1 FOR UPDATE`, v.ID)
		locker = tx.Conn().PgConn().PID()
		v = w.update(t, v, fields{"title": "Locked"})
	}, func() { // the entry's statement names the session, and ends it
		eventually(t, "the session that blocks is named", func() bool {
			blocking := query[uint32](t, w.world, `
				SELECT pid::bigint FROM pg_stat_activity
				 WHERE pid IN (SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity WHERE usename = 'catalog_service')`)
			return slices.Contains(blocking, locker) // and not a session of catalog's own, for a moment
		})
		w.exec(t, fmt.Sprintf(`SELECT pg_terminate_backend(%d)`, locker))
	})
	w.reaches(t, v)
	return v
}

func (w *watched) anEventIsDead(t *testing.T) {
	t.Helper()
	var dead answer
	w.fault(t, []string{"DeadLetters"}, func() {
		w.exec(t, `ALTER TABLE catalog.video_projection ADD CONSTRAINT sense_of_humour CHECK (title <> 'dead')`)
		dead = w.create(t, "dead")
	}, func() {
		w.exec(t, `ALTER TABLE catalog.video_projection DROP CONSTRAINT sense_of_humour`)
		w.o.types(t, "redrive", "NOTHING=", "applied")
	})
	w.reaches(t, dead)
}

// theOwnerIsAway loses an event on its way to catalog, and kills the instance of video that catalog
// asks. The other one publishes the next event.
func (w *watched) theOwnerIsAway(t *testing.T, v answer) {
	t.Helper()
	w.fault(t, []string{"GapsOpen", "FreshnessBurnsFast"}, func() {
		w.exec(t, `UPDATE catalog.video_projection SET version = version - 1 WHERE video_id = $1`, v.ID)
		w.video.kill(t)
		url := "http://" + w.second + "/v1/videos/" + v.ID
		v = call(t, http.MethodPatch, url, nil, fields{"title": "After a gap"}).is(t, http.StatusOK, v.Version+1)
		for range 10 {
			w.read(t, v.ID, v.Token, 0).is(t, http.StatusServiceUnavailable, 0)
		}
	}, func() { w.spawnVideo(t, w.videoAddr).ready(t) })
	w.reaches(t, v)
}

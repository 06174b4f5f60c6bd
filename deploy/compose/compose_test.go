// Package compose_test checks docker-compose.yml with a real container engine:
// `make compose-check`. The tests call the services from outside, as a person would, and
// kill parts with SIGKILL.
//
// Where no image registry can be reached, standins.sh makes the base images from the
// programs that the machine has installed.
package compose_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	// healthyWithin is how long everything may take to be healthy, once it is built.
	healthyWithin = 90 * time.Second
	// manyChecks is above an engine's default of three failures in a row.
	manyChecks = 5
)

func TestCompose(t *testing.T) {
	s := newStack(t)
	start := time.Now()
	s.compose(t, "build")
	t.Logf("built in %.0f s", time.Since(start).Seconds())
	s.up(t)
	s.flows(t, "the start")

	t.Run("images", s.images)
	t.Run("images are from here", s.builtHere)
	t.Run("an operator's command", func(t *testing.T) {
		if out := s.compose(t, "exec", "--no-TTY", "video", "video", "outbox", "status"); !strings.Contains(out, "pending") {
			t.Errorf("video outbox status says %q", out)
		}
	})
	t.Run("video dies", func(t *testing.T) { s.dies(t, "video") })
	t.Run("postgres dies", func(t *testing.T) { s.dies(t, "postgres") })
	t.Run("pubsub dies and forgets", func(t *testing.T) { s.dies(t, "pubsub") })
	t.Run("catalog dies, and the emulator with it", func(t *testing.T) {
		// The emulator goes on sending to a subscriber that has died: only its own
		// restart ends that.
		s.crash(t, "catalog")
		s.dies(t, "pubsub")
	})
	t.Run("the emulator is away for long", s.away)
	t.Run("killed by hand", s.killedByHand)
	t.Run("killed by hand, with a watchdog", s.watched)
	t.Run("observability", s.observability)
	t.Run("data", s.data)
}

// dies crashes a service. It must restart by itself, and events must flow again.
func (s *stack) dies(t *testing.T, service string) {
	before := s.restarts(t, service)
	s.crash(t, service)
	s.eventually(t, service+" is started again", func() error {
		if now := s.restarts(t, service); now <= before {
			return fmt.Errorf("%d restarts", now)
		}
		return nil
	})
	s.flows(t, "the end of "+service)
}

// killedByHand kills with `docker kill`. An engine takes that for a manual stop, to which
// no restart policy applies; the next `docker compose up` starts the containers.
func (s *stack) killedByHand(t *testing.T) {
	for _, service := range []string{"video", "postgres", "pubsub", "catalog"} {
		s.docker(t, "kill", s.container(t, service))
	}
	s.up(t)
	s.flows(t, "docker kill of everything, and docker compose up")
}

// away kills the emulator and leaves it stopped until the engine has run provision's
// health check more often than it does before it calls a container unhealthy. The next
// `docker compose up` starts the rest, and events are delivered.
func (s *stack) away(t *testing.T) {
	s.docker(t, "kill", s.container(t, "pubsub"))
	seen, asked := "", 0
	s.eventually(t, "provision is asked for its health", func() error {
		all := s.docker(t, "inspect", "--format", "{{range .State.Health.Log}}{{.Start.UnixNano}} {{end}}", s.container(t, "provision"))
		if times := strings.Fields(all); len(times) > 0 && times[len(times)-1] != seen {
			seen = times[len(times)-1]
			asked++
		}
		if asked <= manyChecks {
			return fmt.Errorf("%d times", asked)
		}
		return nil
	})
	s.up(t)
	s.flows(t, "docker kill of pubsub, a while, and docker compose up")
}

// watched kills with `docker kill` while the watchdog runs, which restarts killed
// containers and leaves stopped ones.
func (s *stack) watched(t *testing.T) {
	s.compose(t, "--profile", "watchdog", "up", "--detach", "--wait", "watchdog")
	// Before the watchdog sees this kill, the container runs again: no exit follows that the
	// watchdog could wait for.
	s.compose(t, "--profile", "watchdog", "pause", "watchdog")
	video := s.container(t, "video")
	s.docker(t, "kill", video)
	s.docker(t, "start", video)
	s.compose(t, "--profile", "watchdog", "unpause", "watchdog")
	for _, killed := range [][]string{{"video"}, {"postgres"}, {"pubsub"}, {"catalog", "pubsub"}} {
		for _, service := range killed {
			s.killed(t, service)
		}
		s.flows(t, "docker kill of "+strings.Join(killed, " and ")+" with a watchdog")
	}
	s.compose(t, "stop", "--timeout", "0", "video") // ends in the same signal
	s.killed(t, "postgres")                         // its return shows that the watchdog has seen the stop
	if state := s.docker(t, "inspect", "--format", "{{.State.Status}}", s.container(t, "video")); state != "exited" {
		t.Errorf("video is %s after docker compose stop", state)
	}
	s.compose(t, "--profile", "watchdog", "rm", "--stop", "--force", "watchdog")
	s.up(t)
}

// killed waits until the watchdog has started the service again.
func (s *stack) killed(t *testing.T, service string) {
	t.Helper()
	const state = "{{.State.Running}} {{.State.StartedAt}}"
	id := s.container(t, service)
	before := s.docker(t, "inspect", "--format", state, id)
	s.docker(t, "kill", id)
	s.eventually(t, service+" is started again", func() error {
		if now := s.docker(t, "inspect", "--format", state, id); now == before || !strings.HasPrefix(now, "true ") {
			return fmt.Errorf("running, since: %s", now)
		}
		return nil
	})
}

// data survives `down`, and goes with `down -v`.
func (s *stack) data(t *testing.T) {
	w := s.flows(t, "everything before")
	s.compose(t, "down")
	s.up(t)
	for service, url := range map[string]string{"video": s.video, "catalog": s.catalog} {
		if code, v, err := call(t, http.MethodGet, url+"/v1/videos/"+w.ID, nil, nil); err != nil || code != http.StatusOK || v.Version != w.Version {
			t.Errorf("%s after down and up: %d %+v %v, want version %d", service, code, v, err, w.Version)
		}
	}
	s.flows(t, "down and up")
	s.compose(t, "down", "--volumes")
	if left := s.docker(t, "volume", "ls", "--quiet", "--filter", "label=com.docker.compose.project="+s.project); left != "" {
		t.Errorf("volumes left after down -v: %s", left)
	}
}

// flows waits until a new write is seen in the projection, which takes all parts.
func (s *stack) flows(t *testing.T, since string) (w document) {
	t.Helper()
	start := time.Now()
	s.eventually(t, "a write is projected after "+since, func() (err error) {
		if w, err = s.write(t); err != nil {
			return err
		}
		code, v, err := call(t, http.MethodGet, s.catalog+"/v1/videos/"+w.ID, nil,
			http.Header{"Consistency-Token": {w.Token}, "Prefer": {"wait=5"}})
		if err != nil {
			return err
		}
		if code != http.StatusOK || v.Version != w.Version || v.Title != w.Title {
			return fmt.Errorf("read %d %+v, want %+v", code, v, w)
		}
		if v.Source != "projection" {
			return fmt.Errorf("read from the %s", v.Source)
		}
		return nil
	})
	t.Logf("%.1f s after %s a write is projected", time.Since(start).Seconds(), since)
	return w
}

// write makes a video and changes it.
func (s *stack) write(t *testing.T) (document, error) {
	t.Helper()
	code, v, err := call(t, http.MethodPost, s.video+"/v1/videos",
		strings.NewReader(`{"uploader_id":"0190a5d0-0000-7000-8000-000000000001","title":"first"}`), nil)
	if err != nil || code != http.StatusCreated {
		return v, fmt.Errorf("create: %d %w", code, err)
	}
	code, v, err = call(t, http.MethodPatch, s.video+"/v1/videos/"+v.ID, strings.NewReader(`{"title":"second"}`), nil)
	if err != nil || code != http.StatusOK || v.Version != 2 {
		return v, fmt.Errorf("update: %d %+v %w", code, v, err)
	}
	return v, nil
}

package compose_test

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"testing"
)

// maxCompressed is the size limit of a service's image in a registry.
const maxCompressed = 25_000_000

// images are small, and their processes can do little.
func (s *stack) images(t *testing.T) {
	for _, service := range []string{"video", "catalog"} {
		image := "lockstep/" + service
		size := s.docker(t, "image", "inspect", "--format", "{{.Size}}", image)
		compressed := s.compressed(t, image)
		t.Logf("%s: %s bytes, compressed %d", image, size, compressed)
		if compressed > maxCompressed {
			t.Errorf("%s: %d bytes compressed, want %d at most", image, compressed, maxCompressed)
		}
		got := s.docker(t, "inspect", "--format",
			"{{.Config.User}} {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.State.Health.Status}} {{index .Config.Labels \"org.opencontainers.image.title\"}}",
			s.container(t, service))
		if want := "65532:65532 true [ALL] healthy lockstep " + service; got != want {
			t.Errorf("%s runs as %q, want %q", service, got, want)
		}
	}
}

// builtHere checks that no image that is built here is pulled: on a public registry its
// name may belong to another owner, and by default Compose pulls before it builds.
func (s *stack) builtHere(t *testing.T) {
	var config struct {
		Services map[string]struct {
			Build      *struct{} `json:"build"`
			PullPolicy string    `json:"pull_policy"`
		} `json:"services"`
	}
	if err := json.Unmarshal([]byte(s.compose(t, "config", "--format", "json")), &config); err != nil {
		t.Fatal(err)
	}
	built := 0
	for name, service := range config.Services {
		if service.Build == nil {
			continue
		}
		built++
		if service.PullPolicy != "never" {
			t.Errorf("%s is built here, and pull_policy is %q", name, service.PullPolicy)
		}
	}
	if built == 0 {
		t.Error("nothing is built here")
	}
}

// compressed is the image's compressed size in bytes, about that in a registry.
func (s *stack) compressed(t *testing.T, image string) int64 {
	t.Helper()
	save := s.command(t, "save", image)
	out, err := save.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := save.Start(); err != nil {
		t.Fatal(err)
	}
	var size counter
	zip := gzip.NewWriter(&size)
	if _, err := io.Copy(zip, out); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	if err := save.Wait(); err != nil {
		t.Fatal(err)
	}
	return int64(size)
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

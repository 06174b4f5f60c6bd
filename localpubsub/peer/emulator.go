package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"example.com/lockstep/localpubsub/internal/process"
)

const (
	// startTime bounds the start of the emulator. The start takes 1 to 2 s on an idle machine, and
	// far longer on a machine that compiles on every core.
	startTime = 3 * time.Minute
	// stopTime is the time that the emulator has to end before it is killed. With many ordering
	// keys, the Java VM does not end by itself.
	stopTime = 3 * time.Second
	// pollInterval is the pause between two checks of a starting emulator.
	pollInterval = 50 * time.Millisecond
	// probeTime is the time limit of one check.
	probeTime = 2 * time.Second
	// launches is the maximum number of attempts to start the emulator on a free port.
	launches = 5
)

var errTaken = errors.New("the port was taken meanwhile")

const jarPattern = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*-all.jar"

// ErrNotInstalled lists the requirements of the official emulator. [StartEmulator] returns it if a
// requirement is missing.
var ErrNotInstalled = errors.New("the official emulator is not installed: it needs Java and `gcloud components install pubsub-emulator` " +
	"(Debian and Ubuntu: apt-get install default-jre-headless google-cloud-cli-pubsub-emulator)")

// findEmulator returns the paths of the Java program and of the emulator's jar file. It does not
// use `gcloud beta emulators`, which takes twice as long to start, and leaves an orphan process
// when it is stopped.
func findEmulator() (java, jar string, err error) {
	java, err = exec.LookPath("java")
	if err != nil {
		return "", "", ErrNotInstalled
	}
	for _, root := range sdkRoots() {
		jars, _ := filepath.Glob(filepath.Join(root, jarPattern)) // fails on a malformed pattern only
		if len(jars) > 0 {
			return java, slices.Max(jars), nil
		}
	}
	return "", "", ErrNotInstalled
}

// sdkRoots returns possible directories of the Google Cloud CLI. If gcloud is in PATH, the
// directory of that gcloud comes first.
func sdkRoots() []string {
	var roots []string
	if path, err := exec.LookPath("gcloud"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			roots = append(roots, filepath.Dir(filepath.Dir(path))) // ROOT/bin/gcloud
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		roots = append(roots, filepath.Join(home, "google-cloud-sdk"))
	}
	return append(roots, "/usr/lib/google-cloud-sdk")
}

// StartEmulator starts the official emulator of the Google Cloud CLI, and returns when the emulator
// answers. addr is a host:port, whose port may be 0. The emulator needs Java. If the port is taken,
// the error names the port. If the emulator or Java is missing, the error is [ErrNotInstalled]. The
// caller must close the server.
func StartEmulator(ctx context.Context, addr string) (*Server, error) {
	java, jar, err := findEmulator()
	if err != nil {
		return nil, err
	}
	// The emulator needs a port number. So it gets a free port that was just released. Another
	// process may take this port before the emulator does.
	for attempt := 1; ; attempt++ {
		l, err := listen(ctx, addr)
		if err != nil {
			return nil, err
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		s, err := runEmulator(ctx, l.Addr().(*net.TCPAddr), java, jar)
		if !errors.Is(err, errTaken) || attempt == launches {
			return s, err
		}
	}
}

func runEmulator(ctx context.Context, addr *net.TCPAddr, java, jar string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	cmd := exec.Command(java, "-jar", jar, "--host="+addr.IP.String(), fmt.Sprintf("--port=%d", addr.Port))
	emulator, err := process.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	stop := func() error { return emulator.Stop(syscall.SIGTERM, stopTime) }
	if err := awaitReady(ctx, emulator, addr.String()); err != nil {
		return nil, errors.Join(err, stop())
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(jar), "cloud-pubsub-emulator-"), "-all.jar")
	return &Server{addr: addr.String(), description: "official Pub/Sub emulator " + version, done: emulator.Done(), stop: stop}, nil
}

// awaitReady waits until the emulator is ready. It uses the health check only after the emulator
// has printed that it has started. If the port is taken, the emulator stays alive without a port.
// Then the server that has the port would answer the health check.
func awaitReady(ctx context.Context, emulator *process.Process, addr string) error {
	for {
		output := emulator.Output()
		if strings.Contains(output, "BindException") {
			return errTaken
		}
		if strings.Contains(output, "Server started") && healthy(ctx, addr) {
			return nil
		}
		select {
		case <-emulator.Done():
			return fmt.Errorf("the emulator ended: %s", emulator.Output())
		case <-ctx.Done():
			return fmt.Errorf("wait for the emulator: %w: %s", ctx.Err(), emulator.Output())
		case <-time.After(pollInterval):
		}
	}
}

func healthy(ctx context.Context, addr string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", http.NoBody)
	if err != nil {
		return false
	}
	response, err := new(http.Client).Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

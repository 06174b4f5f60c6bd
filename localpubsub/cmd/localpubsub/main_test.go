package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/protobuf/proto"
)

// serve runs the command until the test ends, and returns its address.
func serve(t *testing.T, args ...string) (addr string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"--addr", "127.0.0.1:0"}, args...), in)
		in.CloseWithError(errors.Join(err, io.EOF))
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the command ended with %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "export PUBSUB_EMULATOR_HOST=")
	if !ok {
		t.Fatalf("it prints %q", line)
	}
	return addr
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--adr", "x"}, {"now"}, {"--addr", "8085"}} {
		if err := run(t.Context(), args, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	var help strings.Builder
	if err := run(t.Context(), []string{"--help"}, &help); err != nil || help.String() != usage {
		t.Errorf("--help: %v, %q", err, help.String())
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := run(t.Context(), []string{"--addr", taken.Addr().String()}, io.Discard); err == nil || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("a taken port: %v", err)
	}
}

// TestABadFileServesNothing: the command prints no address.
func TestABadFileServesNothing(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "init.yaml")
	for _, text := range []string{"projcts: {}", "projects: {p: {subscriptions: {sub: {topic: none}}}}", "faults: [{kind: storm}]"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		err := run(t.Context(), []string{"--addr", "127.0.0.1:0", "--init", name}, &out)
		if err == nil || !strings.Contains(err.Error(), "--init") || out.Len() > 0 {
			t.Errorf("%s: %v, %q", text, err, out.String())
		}
	}
}

// TestCompressedCalls: clients may compress their calls with gzip. Google's Go client registers gzip in its whole process, so
// this test does without it, and speaks gRPC over net/http.
func TestCompressedCalls(t *testing.T) {
	t.Parallel()
	topic, err := proto.Marshal(&pubsubpb.Topic{Name: "projects/p/topics/events"})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(topic); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	frame := binary.BigEndian.AppendUint32([]byte{1}, uint32(packed.Len())) // 1: compressed
	url := "http://" + serve(t) + "/google.pubsub.v1.Publisher/CreateTopic"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(append(frame, packed.Bytes()...)))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Encoding": {"gzip"}}
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
	if answer.Trailer.Get("Grpc-Status") != "0" {
		t.Errorf("status %q, %v, want 0", answer.Trailer.Get("Grpc-Status"), answer.Header)
	}
}

// TestTheBinaryIsSmall builds as the Dockerfile does.
func TestTheBinaryIsSmall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds the command without cgo")
	}
	const most = 15_000_000
	name := filepath.Join(t.TempDir(), "localpubsub")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-tags=grpcnotrace", "-trimpath", "-ldflags=-s -w", "-o", name, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(name)
	if err != nil || info.Size() > most {
		t.Errorf("%d bytes (%v), at most %d", info.Size(), err, most)
	}
	t.Logf("%d bytes", info.Size())
}

// TestNode runs the example for Node.js with Google's client of npm.
func TestNode(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it installs packages of npm")
	}
	for _, tool := range []string{"npm", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("not installed: ", tool)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../clients/node")); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	example := exec.CommandContext(t.Context(), "node", "example.mjs")
	example.Dir = dir
	example.Env = append(os.Environ(), "PUBSUB_EMULATOR_HOST="+serve(t, "--init", "../../clients/init.yaml"))
	out, err := example.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "hello order-1 paid") {
		t.Errorf("%v\n%s", err, out)
	}
}

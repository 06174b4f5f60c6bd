package services_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"example.com/lockstep/internal/topics"
)

// nodeReader is a running clients/reader. It prints a line for each message that it has settled.
type nodeReader struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the output ends

	mu    sync.Mutex
	lines []settled
}

// settled is a line of the reader: the outcome of an event, and the version of the event's row afterwards.
type settled struct {
	Outcome string          `json:"outcome"`
	ID      string          `json:"id"`
	Event   int64           `json:"event"`
	Row     int64           `json:"row"`
	Rows    json.RawMessage `json:"rows"`
}

// startReader runs the reader until the test ends, and returns when it has its owner's rows.
func (w *world) startReader(t *testing.T, dir string) *nodeReader {
	t.Helper()
	protos, err := filepath.Abs("../proto")
	if err != nil {
		t.Fatal(err)
	}
	r := &nodeReader{cmd: exec.CommandContext(t.Context(), "node", "reader.mjs"), done: make(chan struct{})}
	r.cmd.Dir, r.cmd.Stderr = dir, t.Output()
	r.cmd.Env = append(os.Environ(), // with the broker's address
		"PROTO_DIR="+protos, "OWNER_ADDR="+w.videoAddr, "GOOGLE_CLOUD_PROJECT="+w.project,
		"SUBSCRIPTION="+topics.Subscription(topics.Video, "reader"), "METADATA_SERVER_DETECTION=none")
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go r.scan(t, out)
	t.Cleanup(func() { r.kill(t) })
	eventually(t, "the reader has its owner's rows", func() bool { return r.count("filled") == 1 })
	return r
}

// scan collects the lines. It fails the test if the reader applies an event twice, or behind a later one.
func (r *nodeReader) scan(t *testing.T, out io.Reader) {
	defer close(r.done)
	newest := map[string]int64{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line settled
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Errorf("%s: %v", lines.Bytes(), err)
			continue
		}
		if line.Outcome == "applied" {
			if line.Event <= newest[line.ID] {
				t.Errorf("version %d of %s was applied behind version %d", line.Event, line.ID, newest[line.ID])
			}
			newest[line.ID] = line.Event
		}
		r.mu.Lock()
		r.lines = append(r.lines, line)
		r.mu.Unlock()
	}
}

func (r *nodeReader) count(outcome string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if line.Outcome == outcome {
			n++
		}
	}
	return n
}

// row is the version of the video's row, or 0 before the first event of the video.
func (r *nodeReader) row(id string) (version int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if line.ID == id {
			version = line.Row
		}
	}
	return version
}

func (r *nodeReader) reaches(t testing.TB, v answer) {
	t.Helper()
	eventually(t, "the reader has the last version of "+v.ID, func() bool { return r.row(v.ID) >= v.Version })
}

// kill ends the reader without a chance to do anything. It may have ended before.
func (r *nodeReader) kill(t testing.TB) {
	t.Helper()
	if r.cmd.ProcessState != nil {
		return
	}
	_ = r.cmd.Process.Kill()
	<-r.done
	_ = r.cmd.Wait() // the signal is its error
}

// end asks the reader to end, and returns its rows.
func (r *nodeReader) end(t testing.TB) (rows map[string]copied) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-r.done
	if err := r.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	last := r.lines[len(r.lines)-1]
	if err := json.Unmarshal(last.Rows, &rows); err != nil || last.Outcome != "end" {
		t.Fatalf("the last line is %+v, %v", last, err)
	}
	return rows
}

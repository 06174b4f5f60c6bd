package localpubsub_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/localpubsub"
)

// written is the file of a journal that ends with the publish of a message;
// last is the offset of that record. before is the state without it, after with
// it.
type written struct {
	content       []byte
	last          int
	before, after []string
}

func writeJournal(t *testing.T, body string) written {
	t.Helper()
	path := filepath.Join(t.TempDir(), "events")
	w := newWorld(t, localpubsub.Options{File: path})
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true})
	w.publish("A", "first", "second")
	w.ack(w.pull()...)
	w.publish("A", "third")
	result := written{before: w.records(), last: len(readFile(t, path))}
	w.publish("A", body)
	result.content, result.after = readFile(t, path), w.records()
	return result
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustHold checks that a server that starts from the content has the wanted
// state.
func mustHold(t *testing.T, what string, content []byte, want []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "events")
	writeFile(t, path, content)
	got, err := localpubsub.Restored(path)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// A kill or a loss of power may leave any part of the last record, with zeros
// for the rest of it or beyond.
func TestTornTail(t *testing.T) {
	t.Parallel()
	w := writeJournal(t, "fourth")
	for cut := w.last; cut < len(w.content); cut++ {
		head := w.content[:cut]
		mustHold(t, fmt.Sprintf("cut at byte %d of %d", cut-w.last, len(w.content)-w.last), head, w.before)
		zeros := slices.Concat(head, make([]byte, len(w.content)-cut))
		if !bytes.Equal(zeros, w.content) {
			mustHold(t, fmt.Sprintf("zeros from byte %d", cut-w.last), zeros, w.before)
			mustHold(t, fmt.Sprintf("more zeros from byte %d", cut-w.last), slices.Concat(zeros, make([]byte, 5000)), w.before)
		}
	}
	mustHold(t, "whole", w.content, w.after)
	mustHold(t, "zeros behind", append(bytes.Clone(w.content), make([]byte, 100<<10)...), w.after)
}

// The cut-off record does not come back, and later records are kept.
func TestTornTailIsWrittenOver(t *testing.T) {
	t.Parallel()
	w := writeJournal(t, strings.Repeat("long ", 100))
	path := filepath.Join(t.TempDir(), "events")
	writeFile(t, path, w.content[:len(w.content)-1])
	for _, text := range []string{"fifth", "sixth"} {
		again := newWorld(t, localpubsub.Options{File: path})
		again.publish("B", text)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	again := newWorld(t, localpubsub.Options{File: path})
	wantTexts(t, again.pull(), "third", "fifth", "sixth")
}

// Damage before the last record is an error that names file and offset, and
// changes nothing. Damage in the last record gives that error, or counts as a
// torn tail.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	w := writeJournal(t, "fourth")
	path := filepath.Join(t.TempDir(), "events")
	for i := range w.content {
		damaged := bytes.Clone(w.content)
		damaged[i] ^= 0x40
		writeFile(t, path, damaged)
		if got, err := localpubsub.Restored(path); err == nil && i >= w.last && cmp.Equal(got, w.before) {
			continue
		}
		server, err := localpubsub.Start(localpubsub.Options{File: path})
		if err == nil {
			server.Close()
		}
		if err == nil || !strings.Contains(err.Error(), path+": offset ") {
			t.Fatalf("byte %d of %d damaged: error %v, want one with the file and an offset", i, len(damaged), err)
		}
		if !bytes.Equal(readFile(t, path), damaged) {
			t.Fatalf("byte %d damaged: the file was changed", i)
		}
		if _, err := os.Stat(path + ".new"); err == nil {
			t.Fatalf("byte %d damaged: a file was left aside", i)
		}
	}
}

func TestFileThatCannotBe(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	other := filepath.Join(directory, "other")
	writeFile(t, other, []byte("a file of something else, which must not be lost"))
	inUse := filepath.Join(directory, "in use")
	w := newWorld(t, localpubsub.Options{File: inUse})
	w.topic()
	for path, why := range map[string]string{
		other:                               "offset 0",
		directory:                           "is a directory",
		filepath.Join(directory, "no", "x"): "no such file or directory",
		os.DevNull:                          "no regular file",
		inUse:                               "another server has the file",
	} {
		server, err := localpubsub.Start(localpubsub.Options{File: path})
		if err == nil {
			server.Close()
		}
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), why) {
			t.Errorf("file %s: error %v, want one that names it and says: %s", path, err, why)
		}
	}
	if content := readFile(t, other); !bytes.HasPrefix(content, []byte("a file of something else")) {
		t.Errorf("it became %q", content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	newWorld(t, localpubsub.Options{File: inUse}) // as soon as it is free
}

// A server that can no longer write reports that, and confirms no change that
// it did not write.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events")
	clock := localpubsub.NewStillClock(worldTime)
	server, err := localpubsub.Start(localpubsub.Options{File: path, Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	w := connect(t, server.Addr())
	w.subscribe(&pubsubpb.Subscription{})
	w.publish("", "kept")
	server.BreakJournal()
	for range 2 {
		err := publishTo(w, topicName, &pubsubpb.PubsubMessage{Data: []byte("not kept")})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("publish: error %v, want one that names the file", err)
		}
	}
	if _, err := createTopic(w, &pubsubpb.Topic{Name: deadTopicName}); err == nil {
		t.Error("a topic was created")
	}
	if err := server.Close(); err == nil {
		t.Error("the server ended as if all were well")
	}
	again := newWorld(t, localpubsub.Options{File: path, Clock: clock})
	wantTexts(t, again.pull(), "kept")
	again.publish("", "kept again")
}

// A stream confirms no acknowledgement that could not be written. The test
// repeats this a few times, because a confirmation that is sent too early is
// not seen every time.
func TestUnwrittenIsNotConfirmed(t *testing.T) {
	t.Parallel()
	for range 8 {
		server, err := localpubsub.Start(localpubsub.Options{File: filepath.Join(t.TempDir(), "events")})
		if err != nil {
			t.Fatal(err)
		}
		w := connect(t, server.Addr())
		w.subscribe(&pubsubpb.Subscription{EnableExactlyOnceDelivery: true})
		s := w.stream(0)
		w.publish("", "one")
		got := s.receive(1)
		server.BreakJournal()
		if err := s.Send(&pubsubpb.StreamingPullRequest{AckIds: ackIDs(got)}); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			var response *pubsubpb.StreamingPullResponse
			response, err = s.Recv()
			if c := response.GetAcknowledgeConfirmation(); c != nil {
				t.Errorf("confirmed: %v", c)
			}
		}
		if status.Code(err) != codes.Unavailable {
			t.Errorf("the stream ended with %v", err)
		}
		server.Close() // it returns the failure again
	}
}

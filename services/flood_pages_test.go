package services_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/pgtest"
)

// TestPagesThatAreNotReadAreBounded: an instance has the memory for as many lists of the longest videos as Cloud
// Run sends at once, and answers others, while no client reads its list.
func TestPagesThatAreNotReadAreBounded(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the memory of a process is read from /proc")
	}
	w := newWorld(t, startBroker(t, broker.Local))
	limit := "GOMEMLIMIT=" + collectorsLimit
	for table, s := range map[string]struct {
		*spawned
		lists int // the concurrency in deploy/terraform
	}{
		"video.videos": {w.spawn(t, "video", w.videoAddr, "DATABASE_URL="+w.pg.VideoURL, limit), 80},
		"catalog.video_projection": {
			w.spawn(t, "catalog", w.catalogAddr, "DATABASE_URL="+w.pg.CatalogURL, "VIDEO_SERVICE_ADDR="+w.videoAddr, limit), 1000,
		},
	} {
		s.ready(t)
		// A character that has six bytes in JSON.
		pgtest.Exec(t, w.db, `
			INSERT INTO `+table+` (video_id, uploader_id, title, description, version, created_at, updated_at)
			SELECT gen_random_uuid(), gen_random_uuid(), 'long', repeat('<', 10000), 1, now(), now() FROM generate_series(1, 50)`)
		served := 0
		for round := 0; round < 5 && served < s.lists/2; round++ { // on a busy machine the database does not answer all in time
			served += s.unreadLists(t, s.lists-served)
		}
		peak := s.resident(t)
		t.Logf("%s: %d lists of %d are not read, peak of resident memory %d MiB", table, served, s.lists, peak>>20)
		if served < s.lists/2 {
			t.Errorf("%d lists of %d are served", served, s.lists)
		}
		if peak > maxResident {
			t.Errorf("%s: %d MiB of memory, want at most %d", table, peak>>20, maxResident>>20)
		}
	}
}

// unreadLists requests n lists over connections that take no byte of a body, and waits for the status of each. It
// returns how many are 200. The answers stay unread until t ends.
func (s *spawned) unreadLists(t *testing.T, n int) int {
	t.Helper()
	const perConnection = 100
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(stop)
	var answered, served, broken atomic.Int64
	for first := 0; first < n; first += perConnection {
		all.Go(func() {
			if err := s.requestLists(ctx, min(perConnection, n-first), func(status string) {
				if status == strconv.Itoa(http.StatusOK) {
					served.Add(1)
				}
				answered.Add(1)
			}); err != nil && ctx.Err() == nil {
				t.Error(err)
				broken.Add(1)
			}
		})
	}
	eventually(t, "each list has a status", func() bool { return broken.Load() > 0 || answered.Load() == int64(n) })
	return int(served.Load())
}

// requestLists requests n lists over one connection, and calls answered with the status of each, until ctx ends.
func (s *spawned) requestLists(ctx context.Context, n int, answered func(status string)) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	err = framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i := range n {
		err = errors.Join(err, framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: uint32(2*i + 1), BlockFragment: listHeaders(), EndStream: true, EndHeaders: true,
		}))
	}
	if err != nil {
		return err
	}
	decoder := hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":status" {
			answered(f.Value)
		}
	})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		if headers, ok := frame.(*http2.HeadersFrame); ok {
			if _, err := decoder.Write(headers.HeaderBlockFragment()); err != nil {
				return err
			}
		}
	}
}

func listHeaders() []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	encoder.SetMaxDynamicTableSize(0)
	for _, field := range [][2]string{
		{":method", "GET"}, {":path", "/v1/videos?page_size=200"}, {":scheme", "http"}, {":authority", "x"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}) // a bytes.Buffer takes it
	}
	return block.Bytes()
}
